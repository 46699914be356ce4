-- the rollouts of a group (of a seat) begin with the same prompt
-- Those that failed before their prompt was made have none.
SELECT group_id, scenario_id, seat, list(DISTINCT prompt_digest) AS digests
FROM trajectories
WHERE
    run = $run AND step = $step AND split = 'train'
    AND len(token_ids) > 0
GROUP BY group_id, scenario_id, seat
HAVING count(DISTINCT prompt_digest) > 1
ORDER BY group_id
