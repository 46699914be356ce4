-- ids, mask and logprobs of a trajectory are equally long
SELECT trajectory_id, len(token_ids) AS ids, len(mask) AS mask, len(logprobs) AS logprobs
FROM trajectories
WHERE
    run = $run AND step = $step AND split = 'train'
    AND (len(token_ids) <> len(mask) OR len(token_ids) <> len(logprobs))
ORDER BY trajectory_id
