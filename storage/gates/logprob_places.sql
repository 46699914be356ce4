-- only sampled tokens have a logprob
-- One that the sampler did not report stops nothing: its trajectory leaves the loss, and is counted
-- (missing_logprobs in the view updates).
SELECT trajectory_id, position, token_id, mask, logprob
FROM tokens
WHERE
    run = $run AND step = $step AND split = 'train'
    AND NOT mask AND logprob IS NOT NULL
ORDER BY trajectory_id, position
