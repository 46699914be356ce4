-- Tokens with the largest difference between sampler and trainer
-- In nats. Large ones on rare tokens point at the engine's arithmetic, on every token at wrong weights.
SELECT
    run,
    step,
    trajectory_id,
    position,
    token_ids[position + 1] AS token_id,
    logprobs[position + 1] AS sampler_logprob,
    trainer_logprob,
    abs(trainer_logprob - logprobs[position + 1]) AS difference
FROM (
    SELECT
        store, run, step, trajectory_id,
        unnest(positions) AS position,
        unnest(trainer_logprobs) AS trainer_logprob
    FROM token_stats
    WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
)
JOIN trajectories USING (store, run, step, trajectory_id)
WHERE split = 'train'
ORDER BY difference DESC NULLS LAST, trajectory_id, position
LIMIT 20
