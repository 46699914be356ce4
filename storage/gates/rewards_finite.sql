-- rewards are finite or null, never NaN or infinite
SELECT trajectory_id, reward
FROM scores
WHERE
    run = $scored_by AND step = $step AND split = 'train'
    AND scorer = $scorer AND NOT isfinite(reward)
ORDER BY trajectory_id
