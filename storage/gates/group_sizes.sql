-- a group has as many rollouts as the run's configuration says (rollouts.rollouts_per_group), a seat each
SELECT group_id, scenario_id, seat, rollouts, expected
FROM (
    SELECT
        group_id,
        scenario_id,
        seat,
        count(*) AS rollouts,
        (any_value(config) ->> '$.rollouts.rollouts_per_group')::INTEGER AS expected
    FROM trajectories
    JOIN runs USING (store, run)
    WHERE run = $run AND step = $step AND split = 'train'
    GROUP BY group_id, scenario_id, seat
)
WHERE rollouts <> coalesce(expected, rollouts)
ORDER BY group_id
