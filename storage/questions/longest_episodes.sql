-- The episodes that sampled the most tokens
SELECT
    run,
    step,
    split,
    trajectory_id,
    scenario_id,
    sampled_tokens,
    len(turns) AS turns,
    segments,
    seconds,
    stop_reason
FROM trajectories
WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
ORDER BY sampled_tokens DESC, trajectory_id
LIMIT 20
