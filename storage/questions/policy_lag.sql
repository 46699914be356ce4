-- Turns by how many updates their policy was behind the step
-- 0 everywhere is on-policy. A turn's version is that which served when its request started.
SELECT
    run,
    step,
    split,
    step - policy_version AS behind,
    count(*) AS turns,
    count(DISTINCT trajectory_id) AS rollouts
FROM turns
WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, step, split, behind
ORDER BY run, step, split, behind
