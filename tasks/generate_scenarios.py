"""Stage 1: make or load the scenarios of both splits, once for a run."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.codec import scenarios_table
from storage.schemas import SCENARIOS
from tasks.progress import progress
from tasks.run import Run
from tasks.scenarios import make_scenarios
from tasks.settings import RunConfig


@task(cache_policy=NO_CACHE)
def generate_scenarios(run: Run, *, rerun: bool = False) -> None:
    """Publish the scenarios of the train and the validation split."""
    if run.scenarios_of() != run.name:
        return
    config = run.config
    stage = run.begin("generate_scenarios", inputs=[], settings=scenario_settings(config), rerun=rerun)
    if stage is None:
        return
    with stage, progress("generate scenarios"):
        for split, scenarios in make_scenarios(config).items():
            stage.publish_table(SCENARIOS, scenarios_table(scenarios), run=run.name, split=split)
            stage.counts[f"{split}_scenarios"] = len(scenarios)


def scenario_settings(config: RunConfig) -> list[Any]:
    """Whatever decides a run's scenarios."""
    return [config.scenarios.model_dump(), config.environment.model_dump(), config.seed]
