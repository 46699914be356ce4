-- logprobs are finite and not above 0
SELECT trajectory_id, position, token_id, logprob
FROM tokens
WHERE
    run = $run AND step = $step AND split = 'train'
    AND (NOT isfinite(logprob) OR logprob > 1e-4) -- 1e-4: rounding of a certain token
ORDER BY trajectory_id, position
