"""A stored trajectory by its id, or by the beginning of its id, with what its scorers say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from storage.catalog import connect
from storage.codec import trajectories_from
from storage.errors import StoreError
from storage.records import Trajectory
from storage.schemas import TRAJECTORIES
from storage.store import Store

FIND = """
    SELECT run, step, split, trajectory_id
    FROM trajectories
    WHERE starts_with(trajectory_id, $prefix)
    ORDER BY run, step, split
    LIMIT 3
"""
REWARDS = """
    SELECT scorer, reward, advantage, group_mean, components, explanation, error
    FROM rewards
    WHERE run = $run AND step = $step AND split = $split AND trajectory_id = $trajectory_id
    ORDER BY scorer
"""
TOKENS = """
    SELECT position, token_id, turn, segment, mask, logprob, trainer_logprob, ratio, advantage, entropy
    FROM tokens
    WHERE run = $run AND step = $step AND split = $split AND trajectory_id = $trajectory_id
    ORDER BY position
"""


@dataclass(frozen=True)
class Found:
    """A trajectory with its rewards, and with a row for each token where they were asked for."""

    trajectory: Trajectory
    rewards: Sequence[dict[str, Any]]
    tokens: Sequence[dict[str, Any]]


def find_trajectory(store: Store, prefix: str, *, tokens: bool = False) -> Found:
    """The one trajectory whose id begins with `prefix`.

    Raises:
        StoreError: no trajectory is called so, or several are.
    """
    with connect(store.root) as connection:
        matches = connection.execute(FIND, {"prefix": prefix}).fetchall()
        if not matches:
            raise StoreError(f"No trajectory in {store.root} has an id that begins with {prefix!r}.")
        if len(matches) > 1:
            some = ", ".join(match[3] for match in matches)
            raise StoreError(f"Several trajectories begin with {prefix!r}: {some}. Give more of the id.")
        run, step, split, trajectory_id = matches[0]
        where = {"run": run, "step": step, "split": split, "trajectory_id": trajectory_id}
        rewards = connection.sql(REWARDS, params=where).to_arrow_table().to_pylist(maps_as_pydicts="strict")
        rows = connection.sql(TOKENS, params=where).to_arrow_table().to_pylist() if tokens else []
    table = store.read(TRAJECTORIES, run=run, step=step, split=split)
    row = table.filter(pc.equal(table["trajectory_id"], trajectory_id))
    return Found(trajectories_from(row, run=run, step=step, split=split)[0], rewards, rows)


def stored_trajectories(
    store: Store, run: str, *, step: int | None = None, split: str = "train"
) -> Iterator[Trajectory]:
    """Trajectories of a run, of one step or of all in order, a file at a time."""
    store.existing_run(run)
    folders = sorted((store.root / "trajectories" / f"run={run}").glob(f"step=*/split={split}"))
    for number in (int(folder.parent.name.removeprefix("step=")) for folder in folders):
        if step is None or number == step:
            table = store.read(TRAJECTORIES, run=run, step=number, split=split)
            yield from trajectories_from(table, run=run, step=number, split=split)
