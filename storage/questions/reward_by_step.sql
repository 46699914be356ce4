-- Reward by step and split
-- Mean over the usable rollouts by each scorer; unscored ones, failed ones among them, are counted beside it.
SELECT
    run,
    step,
    split,
    scorer,
    sum(reward_mean * usable) / nullif(sum(usable), 0) AS reward,
    min(reward_min) AS lowest,
    max(reward_max) AS highest,
    sum(usable)::BIGINT AS scored,
    sum(rollouts - usable)::BIGINT AS unscored
FROM groups
WHERE ($run IS NULL OR run = $run)
GROUP BY run, step, split, scorer
ORDER BY run, step, split, scorer
