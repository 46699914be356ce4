-- What judging cost
-- Cached answers cost nothing; a null cost means that no prices are configured.
SELECT
    run,
    step,
    scorer,
    model,
    count(*) AS calls,
    count(*) FILTER (cached) AS cached,
    count(*) FILTER (error IS NOT NULL) AS unusable,
    sum(prompt_tokens) FILTER (NOT cached)::BIGINT AS prompt_tokens,
    sum(completion_tokens) FILTER (NOT cached)::BIGINT AS completion_tokens,
    sum(cost) FILTER (NOT cached) AS cost,
    sum(seconds) AS seconds
FROM judge_calls
WHERE ($run IS NULL OR run = $run) AND ($step IS NULL OR step = $step)
GROUP BY run, step, scorer, model
ORDER BY run, step, scorer, model
