-- Where two scorers pull a rollout in opposite directions
-- Of the rollouts that both gave a reward: how many get advantages of the same sign, and of opposite ones.
SELECT
    a.run,
    a.step,
    a.scorer AS scorer_a,
    b.scorer AS scorer_b,
    count(*) AS rollouts,
    count(*) FILTER (sign(a.advantage) = sign(b.advantage)) AS same_sign,
    count(*) FILTER (sign(a.advantage) * sign(b.advantage) < 0) AS opposite,
    count(*) FILTER (a.advantage = 0) AS zero_a,
    count(*) FILTER (b.advantage = 0) AS zero_b,
    corr(a.reward, b.reward) AS reward_correlation
FROM rewards AS a
JOIN rewards AS b USING (store, run, step, split, trajectory_id)
WHERE
    a.scorer < b.scorer
    AND split = 'train'
    AND a.advantage IS NOT NULL
    AND b.advantage IS NOT NULL
    AND ($run IS NULL OR a.run = $run)
    AND ($step IS NULL OR a.step = $step)
GROUP BY a.run, a.step, a.scorer, b.scorer
ORDER BY a.run, a.step, scorer_a, scorer_b
