"""The chain: step after step, from wherever the run stands.

    scenarios ──► rollouts ──► scores ──► update ──► validation ──┐
                     ▲                                            │ next step
                     └────────────── adapter step n+1 ◄───────────┘

Started again after any interruption, it goes on from what is committed.
"""

from __future__ import annotations

from prefect import flow

from flows.artifacts import publish_report
from flows.config import check_config
from storage.tracking import Tracker
from tasks.collect_rollouts import collect_rollouts
from tasks.generate_scenarios import generate_scenarios
from tasks.learner import Learner
from tasks.policy import open_player
from tasks.progress import begin_step
from tasks.run import Run
from tasks.score_rollouts import score_rollouts
from tasks.settings import RunConfig
from tasks.update_policy import initialise_policy, update_policy
from tasks.validate_policy import validate_policy


@flow(name="train", flow_run_name="train {config.name}")
async def train(config: RunConfig) -> None:
    """Train a run to `config.steps` updates, or go on with it from where it stands.

    Args:
        config: Everything that the run is; see docs/config.md.
    """
    check_config(config)
    await run_chain(Run.create_or_resume(config))


async def run_chain(run: Run, through: int | None = None) -> None:
    """Do what is left of a run: every stage that is not current, step after step.

    Args:
        through: the last training step to do; None goes on to the end of the run.
    """
    steps = run.config.steps if through is None else min(through + 1, run.config.steps)
    with run.store.writer(run.name):
        tracker, learner = Tracker(run.store, run.name), Learner(run)
        async with open_player(run) as player:
            generate_scenarios(run)
            initialise_policy(run, learner)
            await player.sampler.ready()
            tracker.start()

            for step in range(run.first_open_step(), steps):
                begin_step(step, steps)
                if run.validates(step):
                    await validate_policy(run, step, player)
                await collect_rollouts(run, step, player)
                await score_rollouts(run, step)
                update_policy(run, step, learner)
                tracker.log_step(step)

            if steps == run.config.steps or run.validates(steps):
                await validate_policy(run, steps, player)
                tracker.log_step(steps)
            await publish_report(run, tracker)
            tracker.finish()
