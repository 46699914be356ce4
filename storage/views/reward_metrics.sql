-- A row is a metric of the rewards of a step and split, by the run's own scorer.
WITH own AS (
    SELECT groups.*
    FROM groups
    JOIN runs USING (store, run)
    WHERE groups.scorer = runs.scorer
)
SELECT store, run, step, split, unnest(metrics, recursive := true)
FROM (
    SELECT
        store, run, step, split,
        [
            {
                'name': 'reward',
                'numerator': sum(reward_mean * usable),
                'denominator': sum(usable)::DOUBLE
            },
            {
                'name': 'reward_std',
                'numerator': sum(CASE WHEN zero_variance THEN 0.0 ELSE reward_std END) FILTER (usable > 0),
                'denominator': count(*) FILTER (usable > 0)::DOUBLE
            },
            {
                'name': 'frac_reward_zero_std',
                'numerator': count(*) FILTER (zero_variance)::DOUBLE,
                'denominator': count(*)::DOUBLE
            },
            {
                'name': 'unscored',
                'numerator': sum(rollouts - usable)::DOUBLE,
                'denominator': sum(rollouts)::DOUBLE
            },
            {
                'name': 'solved',
                'numerator': count(*) FILTER (solved <> 'none')::DOUBLE,
                'denominator': count(*)::DOUBLE
            }
        ] AS metrics
    FROM own
    GROUP BY store, run, step, split
)
