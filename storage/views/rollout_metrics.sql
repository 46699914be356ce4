-- A row is a metric of the rollouts of a step and split, whatever became of them: failed ones are counted.
-- A metric that an environment did not report for a rollout counts as 0, since such metrics are sums.
WITH
episodes AS NOT MATERIALIZED (
    SELECT
        store, run, step, split, stop_reason, metrics, sampled_tokens, seconds,
        len(turns) AS turns,
        coalesce(turns[-1].finish_reason = 'length', false) AS clipped
    FROM rollouts
),
totals AS NOT MATERIALIZED (
    SELECT store, run, step, split, count(*)::DOUBLE AS rollouts, sum(sampled_tokens)::DOUBLE AS tokens
    FROM episodes
    GROUP BY store, run, step, split
)
SELECT store, run, step, split, unnest(found, recursive := true)
FROM (
    SELECT
        store, run, step, split,
        [
            {
                'name': 'completions/mean_length',
                'numerator': sum(sampled_tokens)::DOUBLE,
                'denominator': count(*)::DOUBLE
            },
            {
                'name': 'completions/min_length',
                'numerator': min(sampled_tokens)::DOUBLE,
                'denominator': 1.0::DOUBLE
            },
            {
                'name': 'completions/max_length',
                'numerator': max(sampled_tokens)::DOUBLE,
                'denominator': 1.0::DOUBLE
            },
            {
                'name': 'completions/clipped_ratio',
                'numerator': count(*) FILTER (clipped)::DOUBLE,
                'denominator': count(*)::DOUBLE
            },
            {'name': 'num_turns/mean', 'numerator': sum(turns)::DOUBLE, 'denominator': count(*)::DOUBLE},
            {'name': 'rollout/seconds', 'numerator': sum(seconds), 'denominator': count(*)::DOUBLE},
            {
                'name': 'rollout/tokens',
                'numerator': sum(sampled_tokens)::DOUBLE,
                'denominator': 1.0::DOUBLE
            }
        ] AS found
    FROM episodes
    GROUP BY store, run, step, split
)
UNION ALL BY NAME
SELECT
    store, run, step, split,
    'stop/' || reason AS name,
    count(*) FILTER (stop_reason = reason)::DOUBLE AS numerator,
    count(*)::DOUBLE AS denominator
FROM episodes, (SELECT unnest(stop_reason_names()) AS reason)
GROUP BY store, run, step, split, reason
UNION ALL BY NAME
SELECT
    store, run, step, split,
    'env/' || entry.key AS name,
    sum(entry.value) AS numerator,
    any_value(totals.rollouts) AS denominator
FROM (SELECT store, run, step, split, unnest(map_entries(metrics)) AS entry FROM episodes)
JOIN totals USING (store, run, step, split)
GROUP BY store, run, step, split, entry.key
UNION ALL BY NAME
SELECT
    store, run, step, split,
    'rollout/tokens_per_second' AS name,
    tokens AS numerator,
    seconds AS denominator
FROM totals
JOIN stages USING (store, run, step, split)
WHERE stage = 'collect_rollouts' AND state = 'completed'
