-- What changed between two steps on the same scenario
-- Compares the steps $before and $after, by default the first and the last in which a scenario was played.
WITH
played AS (
    SELECT
        run, split, scorer, scenario_id, step,
        sum(reward_mean * usable) / nullif(sum(usable), 0) AS reward,
        sum(mean_tokens * rollouts) / sum(rollouts) AS tokens
    FROM groups
    WHERE scorer IS NOT NULL AND ($run IS NULL OR run = $run)
    GROUP BY run, split, scorer, scenario_id, step
),
pairs AS (
    SELECT
        run, split, scorer, scenario_id,
        coalesce($before::INTEGER, min(step)) AS before,
        coalesce($after::INTEGER, max(step)) AS after
    FROM played
    GROUP BY run, split, scorer, scenario_id
)
SELECT
    run,
    split,
    scorer,
    scenario_id,
    before,
    after,
    old.reward AS reward_before,
    new.reward AS reward_after,
    new.reward - old.reward AS change,
    old.tokens AS tokens_before,
    new.tokens AS tokens_after
FROM pairs
JOIN played AS old USING (run, split, scorer, scenario_id)
JOIN played AS new USING (run, split, scorer, scenario_id)
WHERE old.step = before AND new.step = after AND before < after
ORDER BY change, run, split, scenario_id
