-- A row is a token of an episode; what the trainer computed stands beside those that it trained on.
WITH
sampler AS (
    SELECT
        store, run, step, split, trajectory_id, group_id, scenario_id, turns, segment_starts,
        generate_subscripts(token_ids, 1) - 1 AS position,
        unnest(token_ids) AS token_id,
        unnest(mask) AS mask,
        unnest(logprobs) AS logprob
    FROM rollouts
),
trainer AS (
    SELECT
        store, run, step, 'train' AS split, trajectory_id,
        unnest(positions) AS position,
        unnest(trainer_logprobs) AS trainer_logprob,
        unnest(reference_logprobs) AS reference_logprob,
        unnest(entropies) AS entropy,
        unnest(ratios) AS ratio,
        unnest(advantages) AS advantage
    FROM files.token_stats
)
SELECT
    store,
    run,
    step,
    split,
    trajectory_id,
    group_id,
    scenario_id,
    position,
    token_id,
    mask,
    [turn FOR turn IN turns IF turn.start <= position AND position < turn."end"][1].turn AS turn,
    len([start FOR start IN segment_starts IF start <= position]) - 1 AS segment,
    logprob,
    trainer_logprob,
    reference_logprob,
    ratio,
    advantage,
    entropy
FROM sampler
LEFT JOIN trainer USING (store, run, step, split, trajectory_id, position)
