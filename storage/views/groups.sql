-- A row is a group by one scorer; its scorer is null where nobody scored it. A rollout is usable where it is
-- scored and did not fail; zero_variance: no two usable rewards differ; solved: how many rewards are above 0.
SELECT
    store,
    run,
    step,
    split,
    group_id,
    scenario_id,
    group_no,
    scorer,
    count(*) AS rollouts,
    count(*) FILTER (failed) AS failed,
    count(counted) AS usable,
    avg(counted) AS reward_mean,
    CASE WHEN count(counted) > 1 THEN stddev_samp(counted) END AS reward_std,
    min(counted) AS reward_min,
    max(counted) AS reward_max,
    coalesce(rewards_are_equal(min(counted), max(counted)), scorer IS NOT NULL) AS zero_variance,
    CASE
        WHEN count(counted) = 0 THEN NULL
        WHEN min(counted) > 0 THEN 'all'
        WHEN max(counted) > 0 THEN 'some'
        ELSE 'none'
    END AS solved,
    avg(sampled_tokens) AS mean_tokens
FROM (
    SELECT rollouts.*, scorer, CASE WHEN NOT failed THEN reward END AS counted
    FROM rollouts
    LEFT JOIN scores USING (store, run, step, split, trajectory_id)
)
GROUP BY store, run, step, split, group_id, scenario_id, group_no, scorer
