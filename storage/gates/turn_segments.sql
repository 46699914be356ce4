-- segments begin in order inside the token record, and a turn lies in the one that it names
SELECT trajectory_id, segment_starts, turns
FROM trajectories
WHERE
    run = $run AND step = $step AND split = 'train'
    AND (
        segment_starts <> list_sort(list_distinct(segment_starts))
        OR segment_starts[1] <> 0
        OR segment_starts[-1] > len(token_ids)
        OR len([
            turn FOR turn IN turns
            IF turn.start < segment_starts[turn.segment + 1]
                OR turn."end" > coalesce(segment_starts[turn.segment + 2], len(token_ids))
        ]) > 0
    )
ORDER BY trajectory_id
