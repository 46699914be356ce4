-- A row is an optimiser step.
SELECT * FROM files.updates
