"""Stage 1: make or load the scenarios of both splits, once for a run."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.codec import scenarios_table
from storage.layout import StageKey
from storage.schemas import SCENARIOS
from storage.stages import begin_stage
from tasks.progress import progress
from tasks.run import Run
from tasks.scenarios import make_scenarios


@task(cache_policy=NO_CACHE)
def generate_scenarios(run: Run, *, rerun: bool = False) -> None:
    """Publish the scenarios of the train and the validation split."""
    config = run.config
    settings = [config.scenarios.model_dump(), config.environment.model_dump(), config.seed]
    stage = begin_stage(
        run.store, StageKey(run.name, "generate_scenarios"), inputs=[], settings=settings, rerun=rerun
    )
    if stage is None:
        return
    with stage, progress("generate scenarios"):
        for split, scenarios in make_scenarios(config).items():
            stage.publish_table(SCENARIOS, scenarios_table(scenarios), run=run.name, split=split)
            stage.counts[f"{split}_scenarios"] = len(scenarios)
