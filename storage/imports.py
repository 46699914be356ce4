"""Chats from elsewhere as stored episodes: they can be queried, scored and exported, and hold no tokens."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.chats import from_openai, to_openai
from storage.codec import scenarios_table, scores_table, to_json, trajectories_table
from storage.errors import StoreError
from storage.layout import StageKey
from storage.records import GroupKey, Message, Scenario, Score, StopReason, Trajectory
from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from storage.stages import begin_stage
from storage.store import Store
from storage.version import code_version

SCORER = "imported"


def import_chats(store: Store, path: Path, run: str) -> int:
    """Store the chats of a JSONL file as step 0 of a new run; returns how many.

    A line is an object with `messages` in OpenAI's format. It may have `scenario_id` (or else chats with the
    same beginning up to the first reply belong together), and `reward`, which is stored as scorer `imported`.

    Raises:
        StoreError: the run exists, or a line is no chat; it names the line, and nothing is stored.
    """
    if store.read_run(run) is not None:
        raise StoreError(f"Run {run} exists already in {store.root}. Import under another name.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    places: Counter[str] = Counter()
    scenarios: dict[str, Scenario] = {}
    trajectories, scores = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        chat = _parse(line, where)
        messages = from_openai(chat.get("messages"), where)
        prompt = _prompt(messages)
        scenario_id = str(chat.get("scenario_id") or _scenario_id(prompt))
        scenarios.setdefault(scenario_id, Scenario(scenario_id, {"messages": to_openai(prompt)}))
        trajectory = _trajectory(GroupKey(run, 0, "train", scenario_id, 0), places[scenario_id], messages)
        places[scenario_id] += 1
        trajectories.append(trajectory)
        scores.append(_score(trajectory, chat.get("reward"), where))
    if not trajectories:
        raise StoreError(f"{path} holds no chat.")
    with store.writer(run):
        _publish(store, run, digest, path, list(scenarios.values()), trajectories, scores)
    return len(trajectories)


def _publish(
    store: Store,
    run: str,
    digest: str,
    path: Path,
    scenarios: list[Scenario],
    trajectories: list[Trajectory],
    scores: list[Score],
) -> None:
    where = {"run": run, "step": 0, "split": "train"}
    stage = begin_stage(store, StageKey(run, "import_chats", 0), inputs=[], settings=[digest], rerun=True)
    assert stage is not None  # a rerun is never taken as done
    with stage:
        stage.publish_table(SCENARIOS, scenarios_table(scenarios), run=run, split="train")
        stage.publish_table(TRAJECTORIES, trajectories_table(trajectories), **where)
        stage.publish_table(SCORES, scores_table(scores, digest), **where, scorer=SCORER)
        stage.counts["rollouts"] = len(trajectories)
    store.write_run(
        run,
        {
            "run": run,
            "created_at": datetime.now(UTC).isoformat(),
            "code_version": code_version(),
            "scorer": SCORER,
            "parent": None,
            "mlflow_run_id": None,
            "config": {"imported_from": path.name, "digest": digest},
        },
    )


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        chat = json.loads(line)
    except ValueError as error:
        raise StoreError(f"{where}: it is no JSON ({error}).") from error
    if not isinstance(chat, dict):
        raise StoreError(f"{where}: it must be an object with `messages`.")
    return chat


def _prompt(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    replies = [n for n, message in enumerate(messages) if message.role == "assistant"]
    return messages[: replies[0]] if replies else messages


def _scenario_id(prompt: tuple[Message, ...]) -> str:
    return hashlib.sha256(to_json(to_openai(prompt)).encode()).hexdigest()[:16]


def _trajectory(key: GroupKey, sample_no: int, messages: tuple[Message, ...]) -> Trajectory:
    return Trajectory(
        key=key,
        sample_no=sample_no,
        policy_version=0,
        messages=messages,
        token_ids=(),
        mask=(),
        logprobs=(),
        segment_starts=(),
        turns=(),
        prompt_digest=_scenario_id(_prompt(messages)),
        stop_reason=StopReason.COMPLETED,
        started_at=datetime.now(UTC),
        seconds=0.0,
        temperature=1.0,
        metadata={"imported": True},
    )


def _score(trajectory: Trajectory, reward: Any, where: str) -> Score:
    if reward is None:
        return Score(trajectory.trajectory_id, SCORER, None, error="the file gives no reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) < float("inf"):
        raise StoreError(f"{where}: `reward` must be a finite number, got {reward!r}.")
    return Score(trajectory.trajectory_id, SCORER, float(reward))
