-- Scenarios that never got a reward above 0
SELECT
    run,
    split,
    scorer,
    scenario_id,
    count(*) AS groups,
    sum(usable)::BIGINT AS scored,
    max(reward_max) AS best,
    min(step) AS first_step,
    max(step) AS last_step
FROM groups
WHERE scorer IS NOT NULL AND ($run IS NULL OR run = $run)
GROUP BY run, split, scorer, scenario_id
HAVING coalesce(max(reward_max), 0) <= 0
ORDER BY scored DESC, run, split, scenario_id
