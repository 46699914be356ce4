-- Seconds, tokens and rollouts of each stage
SELECT
    run,
    stage,
    split,
    count(*) AS times,
    sum(seconds) AS seconds,
    sum(seconds) / sum(sum(seconds)) OVER (PARTITION BY run) AS share,
    sum(counts['rollouts'])::BIGINT AS rollouts,
    sum(coalesce(tokens, counts['tokens']))::BIGINT AS tokens,
    sum(coalesce(tokens, counts['tokens'])) / sum(seconds) AS tokens_per_second
FROM stages
LEFT JOIN (
    SELECT store, run, step, split, 'collect_rollouts' AS stage, sum(sampled_tokens) AS tokens
    FROM trajectories
    GROUP BY ALL
) USING (store, run, step, split, stage)
WHERE state = 'completed' AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, stage, split
ORDER BY run, seconds DESC
