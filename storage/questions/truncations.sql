-- Replies cut at their token limit, and episodes cut short
SELECT
    run,
    step,
    split,
    count(*) AS rollouts,
    sum(cut)::BIGINT AS cut_replies,
    count(*) FILTER (cut > 0) / count(*) AS share_with_a_cut,
    count(*) FILTER (stop_reason = 'max_turns') AS out_of_turns,
    count(*) FILTER (stop_reason IN ('context_overflow', 'prompt_too_long')) AS out_of_context,
    count(*) FILTER (stop_reason = 'timeout') AS out_of_time
FROM (
    SELECT *, len([turn FOR turn IN turns IF turn.finish_reason = 'length']) AS cut
    FROM trajectories
    WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
)
GROUP BY run, step, split
ORDER BY run, step, split
