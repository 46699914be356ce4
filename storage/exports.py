"""Stored episodes in the formats of other tools: chats, supervised examples, preference pairs, Parquet.

A row is a plain dict of chat messages and numbers, so that it can be JSON or Parquet, and the Parquet is what
Hugging Face `datasets` loads as it is. Rewards are those of one scorer.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.chats import to_openai
from storage.errors import StoreError
from storage.lookup import stored_trajectories
from storage.records import Message, Trajectory
from storage.schemas import SCORES
from storage.store import Store

FORMATS = ("chats", "sft", "preferences")


def export_rows(
    store: Store,
    run: str,
    format_: str,
    *,
    step: int | None = None,
    split: str = "train",
    scorer: str | None = None,
    min_reward: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """Rows of a run's episodes, of one step or of all.

    Args:
        format_: `chats`, every episode with its reward; `sft`, the episodes with a reward above `min_reward`;
            `preferences`, of each group the best and the worst reply to the same prompt, where they differ.
        scorer: whose rewards; None is the run's own scorer.

    Raises:
        StoreError: there is no such run, or the format is unknown.
    """
    if format_ not in FORMATS:
        raise StoreError(f"There is no export format {format_!r}; the formats are {', '.join(FORMATS)}.")
    name = scorer or store.existing_run(run)["scorer"]
    rated = _rated(store, run, step, split, name)
    if format_ == "chats":
        return (_chat(trajectory, reward) for trajectory, reward in rated)
    if format_ == "sft":
        return (
            _chat(trajectory, reward)
            for trajectory, reward in rated
            if reward is not None and reward > min_reward
        )
    return _preferences(rated)


def write_jsonl(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write a row a line; returns how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def write_parquet_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write rows as one Parquet file; returns how many. Raises StoreError when there is none."""
    found = list(rows)
    if not found:
        raise StoreError(f"Nothing to export: {path} was not written.")
    pq.write_table(pa.Table.from_pylist([dict(row) for row in found]), path, compression="zstd")
    return len(found)


def _rated(
    store: Store, run: str, step: int | None, split: str, scorer: str
) -> Iterator[tuple[Trajectory, float | None]]:
    rewards: dict[str, float | None] = {}
    read: int | None = None
    for trajectory in stored_trajectories(store, run, step=step, split=split):
        if trajectory.key.step != read:
            read = trajectory.key.step
            rewards = _rewards(store, run, read, split, scorer)
        yield trajectory, rewards.get(trajectory.trajectory_id)


def _rewards(store: Store, run: str, step: int, split: str, scorer: str) -> dict[str, float | None]:
    where = {"run": run, "step": step, "split": split, "scorer": scorer}
    if not store.has(SCORES, **where):
        return {}
    table = store.read(SCORES, columns=["trajectory_id", "reward"], **where)
    return dict(zip(table["trajectory_id"].to_pylist(), table["reward"].to_pylist(), strict=True))


def _chat(trajectory: Trajectory, reward: float | None) -> dict[str, Any]:
    return {
        "messages": to_openai(trajectory.messages),
        "reward": reward,
        "scenario_id": trajectory.key.scenario_id,
        "step": trajectory.key.step,
        "trajectory_id": trajectory.trajectory_id,
        "stop_reason": str(trajectory.stop_reason),
    }


def _preferences(rated: Iterable[tuple[Trajectory, float | None]]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[tuple[float, Trajectory]]] = defaultdict(list)
    for trajectory, reward in rated:
        if reward is not None and trajectory.turns:
            groups[trajectory.key.group_id].append((reward, trajectory))
    for members in groups.values():
        rejected_reward, rejected = min(members, key=lambda member: member[0])
        chosen_reward, chosen = max(members, key=lambda member: member[0])
        if chosen_reward > rejected_reward:
            prompt, reply = _split_prompt(chosen)
            yield {
                "prompt": to_openai(prompt),
                "chosen": to_openai(reply),
                "rejected": to_openai(_split_prompt(rejected)[1]),
                "chosen_reward": chosen_reward,
                "rejected_reward": rejected_reward,
                "scenario_id": chosen.key.scenario_id,
            }


def _split_prompt(trajectory: Trajectory) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Messages before the policy's first reply, and from it on: it wrote the last assistant messages."""
    replies = [n for n, message in enumerate(trajectory.messages) if message.role == "assistant"]
    first = replies[len(replies) - len(trajectory.turns)]
    return trajectory.messages[:first], trajectory.messages[first:]
