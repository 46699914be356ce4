-- A row is a reply of the policy: what was sampled, its text, and the calls it made. Replies are the last
-- assistant messages of an episode; earlier ones belong to the prompt.
SELECT
    store,
    run,
    step,
    split,
    trajectory_id,
    group_id,
    scenario_id,
    sample_no,
    seat,
    turn.turn,
    turn.segment,
    turn.start,
    turn."end",
    turn."end" - turn.start AS tokens,
    turn.finish_reason,
    turn.policy_version,
    turn.seed,
    turn.reward,
    reply.content,
    reply.reasoning,
    reply.tool_calls,
    turn.started_at,
    turn.seconds
FROM (
    SELECT
        *,
        unnest(turns) AS turn,
        unnest(replies[len(replies) - len(turns) + 1:]) AS reply
    FROM (
        SELECT *, [message FOR message IN messages IF message.role = 'assistant'] AS replies
        FROM files.trajectories
    )
)
WHERE turn IS NOT NULL
