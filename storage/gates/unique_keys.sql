-- a trajectory is stored once, and a place in a group is taken once
SELECT
    trajectory_id,
    group_id,
    sample_no,
    seat,
    count(*) OVER same_id AS with_this_id,
    count(*) OVER same_place AS in_this_place
FROM trajectories
WHERE run = $run AND step = $step AND split = 'train'
WINDOW same_id AS (PARTITION BY trajectory_id), same_place AS (PARTITION BY group_id, sample_no, seat)
QUALIFY with_this_id > 1 OR in_this_place > 1
ORDER BY trajectory_id
