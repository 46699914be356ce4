"""A fork: a new run that goes on from a step of another one, with another configuration.

What the changed settings leave as it was is shared and not made again: the scenarios, and the rollouts of the
step that was forked. So another reward or another loss trains on the very same rollouts. Scores are the
fork's own: its scorer may be another one, and scoring what is stored costs no sampling.
"""

from __future__ import annotations

from storage.errors import ConfigError
from storage.schemas import TRAJECTORIES
from tasks.collect_rollouts import rollout_settings
from tasks.generate_scenarios import scenario_settings
from tasks.run import ForkPoint, Run
from tasks.settings import RunConfig


def fork_run(run: Run, config: RunConfig, step: int | None = None) -> Run:
    """A new run, named as `config` says, that goes on from the policy of `step`, by default the last one.

    Raises:
        StoreError: there is no adapter of that step, or there is a run of the new name.
        ConfigError: the configuration asks for another model or store.
    """
    if step is None:
        step = max(run.store.adapter_steps(run.name), default=run.first_step)
    owner = run.adapter_of(step)
    run.store.adapter(owner, step)
    if config.model != run.config.model:
        raise ConfigError(
            f"model: a fork goes on from an adapter of {run.name}, so that the model must be the same; "
            "leave the section as it is, or begin a run of its own."
        )
    if config.steps <= step:
        raise ConfigError(f"steps: {config.steps} is not beyond step {step}, from which the fork goes on.")
    scenarios = run.scenarios_of() if scenario_settings(config) == scenario_settings(run.config) else None
    return run.fork(
        config, ForkPoint(run.name, step, owner, scenarios, _shared_rollouts(run, config, step, scenarios))
    )


def _shared_rollouts(run: Run, config: RunConfig, step: int, scenarios: str | None) -> str | None:
    """Whose rollouts of `step` the fork would sample just so; None where it must sample its own."""
    owner = run.rollouts_of(step, "train")
    same = rollout_settings(config, "train") == rollout_settings(run.config, "train")
    if scenarios is None or not same or not run.store.has(TRAJECTORIES, run=owner, step=step, split="train"):
        return None
    return owner
