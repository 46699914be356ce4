-- A row is a task that a run draws from.
SELECT * FROM files.scenarios
