-- A row is a trajectory's reward by one scorer beside its group's. advantage = (reward - group_mean) /
-- group_std in float64, where group_std is the sample standard deviation; it is 0 where the rewards of the
-- group are equal (within 1e-6 of their size) or there is one alone. Unscored and failed rollouts leave mean
-- and spread, and their advantage is null. The advantage that trained stands in the view tokens.
WITH
scored AS (
    SELECT
        store, run, step, split, scorer, trajectory_id, group_id, scenario_id, sample_no, policy_version,
        stop_reason,
        failed,
        sampled_tokens,
        reward,
        CASE WHEN NOT failed THEN reward END AS counted,
        components,
        explanation,
        scores.error
    FROM scores
    JOIN rollouts USING (store, run, step, split, trajectory_id)
),
grouped AS (
    SELECT
        *,
        count(counted) OVER peers AS group_scored,
        avg(counted) OVER peers AS group_mean,
        CASE WHEN count(counted) OVER peers > 1 THEN stddev_samp(counted) OVER peers END AS group_std,
        rewards_are_equal(min(counted) OVER peers, max(counted) OVER peers) AS zero_variance
    FROM scored
    WINDOW peers AS (PARTITION BY store, run, step, split, scorer, group_id)
)
SELECT
    store,
    run,
    step,
    split,
    scorer,
    trajectory_id,
    group_id,
    scenario_id,
    sample_no,
    policy_version,
    stop_reason,
    sampled_tokens,
    reward,
    group_mean,
    group_std,
    group_scored,
    CASE
        WHEN counted IS NULL THEN NULL
        WHEN zero_variance THEN 0.0
        ELSE (counted - group_mean) / group_std
    END AS advantage,
    components,
    explanation,
    error
FROM grouped
