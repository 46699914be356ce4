-- A row is a metric of the tokens that a step trained on, before its first optimiser step: what sampler and
-- trainer differ by, and the entropy.
WITH compared AS (
    SELECT
        store, run, step,
        unnest(ratios)::DOUBLE AS ratio,
        unnest(entropies)::DOUBLE AS entropy,
        abs(unnest(trainer_logprobs)::DOUBLE - unnest([logprobs[p + 1] FOR p IN positions])) AS difference
    FROM token_stats
    JOIN rollouts USING (store, run, step, trajectory_id)
    WHERE split = 'train'
)
SELECT store, run, step, 'train' AS split, unnest(found, recursive := true)
FROM (
    SELECT
        store, run, step,
        [
            {
                'name': 'sampling/importance_sampling_ratio/mean',
                'numerator': sum(ratio),
                'denominator': count(ratio)::DOUBLE
            },
            {
                'name': 'sampling/importance_sampling_ratio/min',
                'numerator': min(ratio),
                'denominator': 1.0::DOUBLE
            },
            {
                'name': 'sampling/importance_sampling_ratio/max',
                'numerator': max(ratio),
                'denominator': 1.0::DOUBLE
            },
            {
                'name': 'sampling/sampling_logp_difference/mean',
                'numerator': sum(difference),
                'denominator': count(difference)::DOUBLE
            },
            {
                'name': 'sampling/sampling_logp_difference/max',
                'numerator': max(difference),
                'denominator': 1.0::DOUBLE
            },
            {'name': 'entropy', 'numerator': sum(entropy), 'denominator': count(entropy)::DOUBLE}
        ] AS found
    FROM compared
    GROUP BY store, run, step
)
