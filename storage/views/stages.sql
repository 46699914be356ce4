-- A row is a piece of work as its record tells it: what it read and published, for how long, by which code.
SELECT * FROM files.stages
