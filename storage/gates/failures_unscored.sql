-- a rollout that was lost to a failure has no reward
SELECT trajectory_id, stop_reason, reward
FROM rewards
WHERE
    run = $scored_by AND step = $step AND split = 'train'
    AND scorer = $scorer AND is_failure(stop_reason) AND reward IS NOT NULL
ORDER BY trajectory_id
