-- every trajectory has a known stop reason
SELECT trajectory_id, stop_reason
FROM trajectories
WHERE
    run = $run AND step = $step AND split = 'train'
    AND coalesce(stop_reason NOT IN (SELECT unnest(stop_reason_names())), true)
ORDER BY trajectory_id
