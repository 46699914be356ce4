-- A row is a committed adapter: the policy of a step, and what it was made from.
SELECT * FROM files.adapters
