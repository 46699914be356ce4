-- A row is an episode as a run uses it: those that it sampled and, for a fork, those of the step that it was
-- forked from, which sampled_by another run. Count what was sampled in trajectories.
SELECT *, run AS sampled_by FROM trajectories
UNION ALL BY NAME
SELECT trajectories.* REPLACE (runs.run AS run), trajectories.run AS sampled_by
FROM trajectories
JOIN runs
    ON trajectories.store = runs.store
    AND trajectories.run = runs.rollouts_of
    AND trajectories.step = runs.parent_step
WHERE trajectories.split = 'train'
