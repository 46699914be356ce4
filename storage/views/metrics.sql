-- A row is a metric of a step as MLflow gets it, with what it is a quotient of. Those of validation begin
-- with val/. Counts and extremes have the denominator 1.
SELECT
    store,
    run,
    step,
    split,
    CASE WHEN split = 'validation' THEN 'val/' ELSE '' END || name AS name,
    numerator / nullif(denominator, 0) AS value,
    numerator,
    denominator
FROM (
    SELECT store, run, step, split, name, numerator, denominator FROM reward_metrics
    UNION ALL
    SELECT store, run, step, split, name, numerator, denominator FROM rollout_metrics
    UNION ALL
    SELECT store, run, step, split, name, numerator, denominator FROM sampling_metrics
    UNION ALL
    SELECT store, run, step, split, name, numerator, denominator FROM update_metrics
    UNION ALL
    SELECT store, run, step, split, name, numerator, denominator FROM stage_metrics
)
