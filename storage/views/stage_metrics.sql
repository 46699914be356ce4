-- A row is the wall-clock seconds of a stage of a step; of scoring, that by the run's own scorer.
SELECT
    store,
    run,
    step,
    coalesce(split, 'train') AS split,
    'time/' || stage AS name,
    sum(seconds) AS numerator,
    1.0::DOUBLE AS denominator
FROM stages
JOIN runs USING (store, run)
WHERE step IS NOT NULL AND state = 'completed' AND (stages.scorer IS NULL OR stages.scorer = runs.scorer)
GROUP BY store, run, step, split, stage
