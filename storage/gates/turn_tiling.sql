-- the turns of a trajectory cover its sampled tokens exactly, in order and without overlap
SELECT trajectory_id, sampled, in_turns, turns
FROM (
    SELECT
        trajectory_id,
        [{'turn': turn.turn, 'start': turn.start, 'end': turn."end"} FOR turn IN turns] AS turns,
        list_where(range(len(mask)), mask) AS sampled,
        flatten([range(turn.start, turn."end") FOR turn IN turns]) AS in_turns
    FROM trajectories
    WHERE run = $run AND step = $step AND split = 'train'
)
WHERE sampled <> in_turns
ORDER BY trajectory_id
