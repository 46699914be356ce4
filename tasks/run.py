"""A run: its configuration and its place in a store. Every stage is given one, and reads the rest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from storage.errors import StoreError
from storage.layout import check_name
from storage.store import Store
from storage.version import code_version
from tasks.rewards.programmatic import scorer_name
from tasks.settings import RunConfig

# What may change while a run goes on: how far it goes, and what only looks at it.
CHANGEABLE = {"steps", "store", "validation", "tracking"}


@dataclass(frozen=True)
class Run:
    store: Store
    config: RunConfig

    @property
    def name(self) -> str:
        return self.config.name

    def first_open_step(self) -> int:
        """The step to go on from: the one whose update published the last adapter, since the record of that
        update may be missing, or 0."""
        return max(max(self.store.adapter_steps(self.name), default=0) - 1, 0)

    def validates(self, step: int) -> bool:
        """Whether validation is due before training step `step`; it always is after the last one."""
        every = self.config.validation.every
        return self.config.validation.at_start if step == 0 else every is not None and step % every == 0

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
        description = {
            "run": name,
            "created_at": datetime.now(UTC).isoformat(),
            "code_version": code_version(),
            "scorer": scorer_name(config.reward),
            "parent": None,
            "mlflow_run_id": None,
            **(stored or {}),
            "config": config.model_dump(mode="json"),
        }
        if description != stored:
            store.write_run(name, description)
        return cls(store, config)

    @classmethod
    def load(cls, store: str, name: str) -> Run:
        """A run that is in the store. Raises StoreError when it is not, or cannot be read by this version."""
        found = Store.existing(store)
        try:
            config = RunConfig.model_validate({**found.existing_run(name)["config"], "store": store})
        except ValidationError as error:
            raise StoreError(f"The configuration of run {name} cannot be read: {error}") from error
        return cls(found, config)


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
