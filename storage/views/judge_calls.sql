-- A row is a request to a judge, with its raw reply.
SELECT * FROM files.judge_calls
