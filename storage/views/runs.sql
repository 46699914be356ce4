-- A row is a run: its configuration, its scorer, and the run and step that it was forked from, with the run
-- whose rollouts of that step it trains on, where it did not sample its own.
SELECT
    store,
    run,
    created_at,
    scorer,
    parent.run AS parent_run,
    parent.step AS parent_step,
    parent.rollouts AS rollouts_of,
    code_version,
    mlflow_run_id,
    config
FROM files.runs
