-- exactly the sampled tokens have a logprob
SELECT trajectory_id, position, token_id, mask, logprob
FROM tokens
WHERE
    run = $run AND step = $step AND split = 'train'
    AND mask <> (logprob IS NOT NULL)
ORDER BY trajectory_id, position
