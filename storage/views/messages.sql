-- A row is one message of an episode, in order from position 0.
SELECT
    store,
    run,
    step,
    split,
    trajectory_id,
    group_id,
    scenario_id,
    position,
    message.role,
    message.content,
    message.reasoning,
    message.tool_calls,
    message.tool_call_id,
    message.name
FROM (
    SELECT *, unnest(messages) AS message, generate_subscripts(messages, 1) - 1 AS position
    FROM files.trajectories
)
