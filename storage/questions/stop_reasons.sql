-- Why episodes ended, and the reward that they got
-- The share is of all rollouts of the split. A reason that grows with the steps is worth a look.
SELECT
    run,
    split,
    scorer,
    stop_reason,
    count(*) AS rollouts,
    count(*) / sum(count(*)) OVER (PARTITION BY run, split, scorer) AS share,
    avg(reward) AS reward,
    avg(trajectories.sampled_tokens) AS tokens
FROM trajectories
LEFT JOIN scores USING (store, run, step, split, trajectory_id)
WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, split, scorer, stop_reason
ORDER BY run, split, scorer, rollouts DESC
