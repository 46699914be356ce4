-- Reward hacking suspects: reward up, and length or repetition up with it
-- Compares each scenario's first and last step. Repetition is the share of sampled tokens that their episode
-- had sampled before; a suspect gained reward while tokens or repetition grew by a quarter.
WITH
episodes AS (
    SELECT
        store, run, step, split, trajectory_id, scenario_id, sampled_tokens,
        flatten([token_ids[turn.start + 1 : turn."end"] FOR turn IN turns]) AS said
    FROM trajectories
    WHERE split = 'train' AND ($run IS NULL OR run = $run)
),
played AS (
    SELECT
        run, scorer, scenario_id, step,
        avg(reward) AS reward,
        avg(sampled_tokens) AS tokens,
        avg(CASE WHEN len(said) > 0 THEN 1 - list_unique(said) / len(said) END) AS repetition
    FROM episodes
    JOIN scores USING (store, run, step, split, trajectory_id)
    GROUP BY run, scorer, scenario_id, step
),
compared AS (
    SELECT
        run,
        scorer,
        scenario_id,
        min(step) AS first_step,
        max(step) AS last_step,
        arg_min(reward, step) AS reward_before,
        arg_max(reward, step) AS reward_after,
        arg_min(tokens, step) AS tokens_before,
        arg_max(tokens, step) AS tokens_after,
        arg_min(repetition, step) AS repetition_before,
        arg_max(repetition, step) AS repetition_after
    FROM played
    GROUP BY run, scorer, scenario_id
)
SELECT *
FROM compared
WHERE
    reward_after > reward_before
    AND (tokens_after > 1.25 * tokens_before OR repetition_after > 1.25 * repetition_before)
ORDER BY reward_after - reward_before DESC, run, scorer, scenario_id
