-- A row is a trajectory as the trainer saw it before the first optimiser step: lists over its sampled tokens.
SELECT * FROM files.token_stats
