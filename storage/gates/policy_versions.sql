-- every turn of the step was sampled by the adapter of that step
SELECT trajectory_id, turn, policy_version, step
FROM turns
WHERE
    run = $run AND step = $step AND split = 'train'
    AND policy_version <> step
ORDER BY trajectory_id, turn
