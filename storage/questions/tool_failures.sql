-- Tool calls that failed, by policy version
-- A call failed where the tool's message begins with "error", in any case. Messages without an id answer a
-- call that could not be read.
SELECT
    run,
    policy_version,
    count(*) AS answers,
    count(*) FILTER (content ILIKE 'error%') AS failures,
    count(*) FILTER (content ILIKE 'error%') / count(*) AS share,
    count(*) FILTER (content ILIKE 'error%' AND tool_call_id IS NULL) AS unreadable,
    mode(content) FILTER (content ILIKE 'error%') AS most_frequent
FROM messages
JOIN (SELECT store, run, step, split, trajectory_id, policy_version FROM trajectories)
    USING (store, run, step, split, trajectory_id)
WHERE role = 'tool' AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, policy_version
ORDER BY run, policy_version
