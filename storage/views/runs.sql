-- A row is a run: its configuration, its scorer, and the run and step that it was forked from.
SELECT
    store,
    run,
    created_at,
    scorer,
    parent.run AS parent_run,
    parent.step AS parent_step,
    code_version,
    mlflow_run_id,
    config
FROM files.runs
