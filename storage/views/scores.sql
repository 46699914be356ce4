-- A row is what one scorer says of one trajectory. An unscored trajectory has a null reward; 0.0 is a reward.
SELECT * FROM files.scores
