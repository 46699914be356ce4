"""Go on with a stored run: from where it stands, or from a stage that is done again.

rollmill resume RUN                              what is left to do
rollmill rerun RUN --from score_rollouts --step 3    that stage, and all that was made from it
"""

from __future__ import annotations

from typing import Literal

from prefect import flow

from flows.config import check_config
from flows.train import run_chain
from tasks.run import Run

ChainStage = Literal["generate_scenarios", "collect_rollouts", "score_rollouts", "update_policy"]


@flow(name="resume", flow_run_name="resume {run}")
async def resume(
    run: str,
    steps: int | None = None,
    stale: Literal["refuse", "rerun"] = "refuse",
    store: str = ".rollmill/store",
) -> None:
    """Go on with a run from where it stands.

    Args:
        run: Name of the run.
        steps: Updates in all; by default as many as before.
        stale: What becomes of stages whose inputs have changed since: refuse to go on, or do them again.
        store: Folder of the store.
    """
    found = Run.load(store, run)
    if steps is not None:
        found = Run.create_or_resume(found.config.model_copy(update={"steps": steps}))
    check_config(found.config)
    await run_chain(found.redoing_stale() if stale == "rerun" else found)


@flow(name="rerun", flow_run_name="rerun {run} from {from_stage}")
async def rerun(
    run: str,
    from_stage: ChainStage,
    step: int | None = None,
    through: int | None = None,
    store: str = ".rollmill/store",
) -> None:
    """Do a stage of a run again, and whatever was made from it. What it replaces is kept.

    Args:
        run: Name of the run.
        from_stage: The stage to begin with.
        step: Its training step; generate_scenarios has none.
        through: The last step that is done again; what comes after it stays stale. By default all are.
        store: Folder of the store.
    """
    found = Run.load(store, run)
    check_config(found.config)
    with found.store.writer(run):
        found.invalidate(from_stage, step)
    await run_chain(found.redoing_stale(), through=through)
