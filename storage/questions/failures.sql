-- Rollouts that were lost, with their errors
SELECT run, step, split, stop_reason, error, count(*) AS rollouts, any_value(trajectory_id) AS example
FROM trajectories
WHERE failed AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, step, split, stop_reason, error
ORDER BY rollouts DESC, run, step, split, error
