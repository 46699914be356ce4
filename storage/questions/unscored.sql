-- Why rollouts have no reward
SELECT run, step, split, scorer, error, count(*) AS rollouts, any_value(trajectory_id) AS example
FROM scores
WHERE reward IS NULL AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, step, split, scorer, error
ORDER BY run, step, split, rollouts DESC, error
