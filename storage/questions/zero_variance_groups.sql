-- Groups whose rewards are all equal: nothing to learn from
-- A scenario solved by all is too easy, one solved by none too hard, for the policy as it was.
SELECT run, step, scorer, scenario_id, group_id, rollouts, usable, reward_mean AS reward, solved
FROM groups
WHERE zero_variance AND split = 'train' AND ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
ORDER BY run, step, scorer, scenario_id
