-- A row is an episode of one seat: what was said and the exact tokens sampled.
SELECT
    *,
    is_failure(stop_reason) AS failed,
    len(token_ids) AS tokens,
    coalesce(list_sum([turn."end" - turn.start FOR turn IN turns]), 0)::BIGINT AS sampled_tokens,
    len(segment_starts) AS segments
FROM files.trajectories
