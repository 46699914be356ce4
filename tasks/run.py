"""A run: its configuration and its place in a store. Every stage is given one, and reads the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from storage.errors import StoreError
from storage.layout import StageKey, adapter_folder, check_name
from storage.stages import (
    OnStale,
    Stage,
    StageState,
    accept_stage,
    begin_stage,
    invalidate_stage,
    stale_advice,
)
from storage.status import run_status
from storage.store import Store
from storage.version import code_version
from tasks.rewards.scorers import scorer_name
from tasks.settings import RunConfig

# What may change while a run goes on: how far it goes, and what only looks at it.
CHANGEABLE = {"steps", "store", "validation", "tracking"}


@dataclass(frozen=True)
class ForkPoint:
    """Where a forked run begins, and whose data it goes on from. Nothing of it is copied.

    Attributes:
        run, step: the run that was forked, and the step from which the fork goes its own way.
        adapter, scenarios, rollouts: the run whose adapter and rollouts of that step, and whose scenarios,
            the fork shares; None where it makes its own, since its configuration asks for others.
    """

    run: str
    step: int
    adapter: str
    scenarios: str | None
    rollouts: str | None


@dataclass(frozen=True)
class Run:
    store: Store
    config: RunConfig
    parent: ForkPoint | None = None
    on_stale: OnStale = OnStale.REFUSE

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def first_step(self) -> int:
        """The step that the run begins with: 0, or that of the fork."""
        return 0 if self.parent is None else self.parent.step

    def first_open_step(self) -> int:
        """The step to go on from: the earliest one with a stage that is not final, else the one whose update
        published the last adapter, since the record of that update may be missing.

        Raises:
            StoreError: stages are stale, and are not to be done again.
        """
        last = max(max(self.store.adapter_steps(self.name), default=self.first_step) - 1, self.first_step)
        unfinished = [
            status
            for status in run_status(self.store, self.name, digests_of="records")
            if status.state is not StageState.CURRENT
            and status.key.scorer in (None, scorer_name(self.config.reward))  # others score what is done
        ]
        stale = [status for status in unfinished if status.state is StageState.STALE]
        if stale and self.on_stale is OnStale.REFUSE:
            listed = "\n".join(f"  {status.key}: {status.reason}" for status in stale[:5])
            more = f"\n  and {len(stale) - 5} more" if len(stale) > 5 else ""
            advice = stale_advice(self.name)
            raise StoreError(f"Stages of run {self.name} are stale:\n{listed}{more}\n{advice}")
        return min([last, *(s.key.step for s in unfinished if s.key.step is not None)])

    def validates(self, step: int) -> bool:
        """Whether validation is due before training step `step`; it always is after the last one. Where it
        was done once, it is due: it may have become stale."""
        every = self.config.validation.every
        if self.store.files.exists(StageKey(self.name, "collect_rollouts", step, "validation").record_file):
            return True
        if step == self.first_step:
            return self.config.validation.at_start
        return every is not None and step % every == 0

    # Whose data it is: the run's own, or for a fork that of the run it came from

    def scenarios_of(self) -> str:
        """The run whose scenarios this one plays."""
        return self.name if self.parent is None else self.parent.scenarios or self.name

    def rollouts_of(self, step: int, split: str) -> str:
        """The run whose rollouts of a step this one scores and trains on."""
        if self.parent is None or (step, split) != (self.parent.step, "train"):
            return self.name
        return self.parent.rollouts or self.name

    def adapter_of(self, step: int) -> str:
        """The run whose adapter is the policy of a step."""
        return self.parent.adapter if self.parent is not None and step == self.parent.step else self.name

    def adapter_folder(self, step: int) -> str:
        """Path in the store of the policy of a step."""
        return adapter_folder(self.adapter_of(step), step)

    # Stages

    def begin(
        self,
        stage: str,
        step: int | None = None,
        split: str | None = None,
        scorer: str | None = None,
        *,
        inputs: Sequence[str],
        settings: Any,
        rerun: bool = False,
    ) -> Stage | None:
        """The stage to work on, or None when there is nothing to do; see `begin_stage`."""
        key = StageKey(self.name, stage, step, split, scorer)
        return begin_stage(
            self.store, key, inputs=inputs, settings=settings, rerun=rerun, on_stale=self.on_stale
        )

    def redoing_stale(self) -> Run:
        """The same run, whose stale stages are done again."""
        return replace(self, on_stale=OnStale.RERUN)

    def invalidate(self, stage: str, step: int | None) -> None:
        """Have a stage of the training split done again by the chain, and then what was made from it.

        Raises:
            StoreError: the stage has not run.
        """
        keys = [
            status.key
            for status in run_status(self.store, self.name, digests_of="records")
            if (status.key.stage, status.key.step) == (stage, step) and status.key.split in (None, "train")
        ]
        if not keys:
            raise StoreError(
                f"Run {self.name} has not done {stage}{'' if step is None else f' of step {step}'}; "
                f"see `rollmill status {self.name} --all`."
            )
        for key in keys:
            invalidate_stage(self.store, key)

    def accept_stale(self) -> list[StageKey]:
        """Take every stale stage as it is; returns what was accepted, in order."""
        accepted: list[StageKey] = []
        while stale := [s.key for s in run_status(self.store, self.name) if s.state is StageState.STALE]:
            if stale[0] in accepted:
                raise StoreError(
                    f"{stale[0]} stays stale, since what it is made from is to be done again: "
                    f"`rollmill resume {self.name} --stale rerun`."
                )
            accept_stage(self.store, stale[0])
            accepted.append(stale[0])
        return accepted

    @classmethod
    def create_or_resume(cls, config: RunConfig) -> Run:
        """Write the run's description, or go on with the run of that name.

        Raises:
            StoreError: a run of that name was made with another configuration.
        """
        store, name = Store(config.store), check_name("run", config.name)
        stored = store.read_run(name)
        if stored is not None:
            _refuse_changes(name, stored["config"], config.model_dump(mode="json"))
        description = {**_describe(config), **(stored or {}), "config": config.model_dump(mode="json")}
        if description != stored:
            store.write_run(name, description)
        return cls(store, config, _fork_point(description))

    def fork(self, config: RunConfig, parent: ForkPoint) -> Run:
        """A new run in the same store that goes on from a step of this one. Raises StoreError when there is
        a run of that name already."""
        if self.store.read_run(check_name("run", config.name)) is not None:
            raise StoreError(f"There is a run {config.name} in {self.store.root} already: name it anew.")
        self.store.write_run(config.name, {**_describe(config), "parent": asdict(parent)})
        return Run(self.store, config, parent)

    @classmethod
    def load(cls, store: str, name: str) -> Run:
        """A run that is in the store. Raises StoreError when it is not, or cannot be read by this version."""
        found = Store.existing(store)
        description = found.existing_run(name)
        try:
            config = RunConfig.model_validate({**description["config"], "store": store})
        except ValidationError as error:
            raise StoreError(f"The configuration of run {name} cannot be read: {error}") from error
        return cls(found, config, _fork_point(description))


def _describe(config: RunConfig) -> dict[str, Any]:
    """What `run.json` says of a run that begins."""
    return {
        "run": config.name,
        "created_at": datetime.now(UTC).isoformat(),
        "code_version": code_version(),
        "scorer": scorer_name(config.reward),
        "parent": None,
        "mlflow_run_id": None,
        "config": config.model_dump(mode="json"),
    }


def _fork_point(description: dict[str, Any]) -> ForkPoint | None:
    parent = description["parent"]
    return None if parent is None else ForkPoint(**parent)


def _refuse_changes(name: str, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    changed = [
        f"  {path}: {before!r} in the store, {now!r} now"
        for path, before, now in _differences(stored, wanted)
        if path.split(".")[0] not in CHANGEABLE
    ]
    if changed:
        raise StoreError(
            f"Run {name} was begun with another configuration:\n"
            + "\n".join(changed)
            + "\nGive this one another name, or put the configuration back."
        )


def _differences(before: Any, now: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves that differ between two JSON-like values, as (dotted path, before, now)."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(key for key in now if key not in before)]
        return [
            difference
            for key in keys
            for difference in _differences(before.get(key), now.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if before == now else [(path, before, now)]
