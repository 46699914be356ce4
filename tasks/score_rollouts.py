"""Stage 3: give stored rollouts their rewards. Needs no model and no GPU, and can be done again at will."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.codec import judge_calls_table, scenarios_from, scores_table, trajectories_from
from storage.layout import data_file
from storage.replies import StoredReplies
from storage.schemas import JUDGE_CALLS, SCENARIOS, SCORES, TRAJECTORIES
from tasks.progress import progress
from tasks.rewards.scorers import make_scorer
from tasks.run import Run
from tasks.settings import RewardSettings


@task(cache_policy=NO_CACHE)
async def score_rollouts(
    run: Run,
    step: int,
    *,
    split: str = "train",
    reward: RewardSettings | None = None,
    rerun: bool = False,
) -> None:
    """Publish the scores of one step and split by one scorer, by default the run's own.

    Raises:
        ConfigError: the scorer cannot be imported.
        StoreError: the rollouts are not there.
    """
    scorer = make_scorer(reward or run.config.reward, StoredReplies(run.store))
    where: dict[str, Any] = {"step": step, "split": split}
    rollouts = {"run": run.rollouts_of(step, split), **where}
    stage = run.begin(
        "score_rollouts",
        step,
        split,
        scorer.name,
        inputs=[
            data_file(TRAJECTORIES, **rollouts),
            data_file(SCENARIOS, run=run.scenarios_of(), split=split),
        ],
        settings=[scorer.digest],
        rerun=rerun,
    )
    if stage is None:
        return
    with stage, progress(f"score {split} rollouts"):
        trajectories = trajectories_from(run.store.read(TRAJECTORIES, **rollouts), **rollouts)
        scenarios = scenarios_from(run.store.read(SCENARIOS, run=run.scenarios_of(), split=split))
        scores = await scorer.score(trajectories, {s.scenario_id: s for s in scenarios})
        table = scores_table(scores, scorer.digest)
        place = {"run": run.name, **where, "scorer": scorer.name}
        if calls := scorer.judge_calls:
            stage.publish_table(JUDGE_CALLS, judge_calls_table(calls), **place)
        stage.publish_table(SCORES, table, **place)
        stage.counts.update(scored=sum(s.reward is not None for s in scores), rollouts=len(scores))
