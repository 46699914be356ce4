-- A row is a metric of a step's update. Loss and gradient norm are means over the optimiser steps taken, other
-- numbers are weighted by tokens, and names that end in min or max give the extreme.
SELECT store, run, step, 'train' AS split, unnest(found, recursive := true)
FROM (
    SELECT
        store, run, step,
        [
            {'name': 'loss', 'numerator': sum(loss), 'denominator': count(loss)::DOUBLE},
            {'name': 'grad_norm', 'numerator': sum(grad_norm), 'denominator': count(grad_norm)::DOUBLE},
            {
                'name': 'learning_rate',
                'numerator': last(learning_rate ORDER BY optimizer_step),
                'denominator': 1.0::DOUBLE
            },
            {
                'name': 'update/skipped',
                'numerator': count(skipped)::DOUBLE,
                'denominator': count(*)::DOUBLE
            },
            {'name': 'update/tokens', 'numerator': sum(tokens)::DOUBLE, 'denominator': 1.0::DOUBLE},
            {
                'name': 'update/forward_tokens',
                'numerator': sum(forward_tokens)::DOUBLE,
                'denominator': 1.0::DOUBLE
            }
        ] AS found
    FROM updates
    GROUP BY store, run, step
)
UNION ALL BY NAME
SELECT
    store, run, step,
    'train' AS split,
    entry.key AS name,
    CASE
        WHEN suffix(entry.key, 'min') THEN min(entry.value)
        WHEN suffix(entry.key, 'max') THEN max(entry.value)
        ELSE sum(entry.value * tokens)
    END AS numerator,
    CASE
        WHEN suffix(entry.key, 'min') OR suffix(entry.key, 'max') THEN 1.0
        ELSE sum(tokens)
    END::DOUBLE AS denominator
FROM (SELECT store, run, step, tokens, unnest(map_entries(metrics)) AS entry FROM updates)
WHERE entry.key <> 'entropy' -- the view sampling_metrics has it, from the tokens themselves
GROUP BY store, run, step, entry.key
