-- every trajectory has one score by the scorer, and every score its trajectory
SELECT
    coalesce(rollouts.trajectory_id, given.trajectory_id) AS trajectory_id,
    count(rollouts.trajectory_id) AS trajectories,
    count(given.trajectory_id) AS scores
FROM (
    SELECT trajectory_id
    FROM trajectories
    WHERE run = $run AND step = $step AND split = 'train'
) AS rollouts
FULL JOIN (
    SELECT trajectory_id
    FROM scores
    WHERE run = $scored_by AND step = $step AND split = 'train' AND scorer = $scorer
) AS given
    ON rollouts.trajectory_id = given.trajectory_id
GROUP BY ALL
HAVING trajectories <> 1 OR scores <> 1
ORDER BY trajectory_id
