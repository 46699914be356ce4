-- Groups whose members said the same
-- Many duplicates mean that sampling has collapsed, or that members share a seed.
WITH completions AS (
    SELECT
        run, step, split, scenario_id, group_id,
        md5([token_ids[turn.start + 1 : turn."end"] FOR turn IN turns]::VARCHAR) AS completion
    FROM trajectories
    WHERE len(turns) > 0 AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
)
SELECT
    run,
    step,
    split,
    scenario_id,
    group_id,
    count(*) AS rollouts,
    count(DISTINCT completion) AS distinct_completions
FROM completions
GROUP BY run, step, split, scenario_id, group_id
HAVING count(DISTINCT completion) < count(*)
ORDER BY distinct_completions / rollouts, run, step, group_id
