"""Records to Arrow and back, without loss: what is None stays None, and what is empty stays empty."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from storage.records import (
    GroupKey,
    JudgeCall,
    Message,
    Scenario,
    Score,
    StopReason,
    ToolCall,
    Trajectory,
    Turn,
)
from storage.schemas import JUDGE_CALLS, SCENARIOS, SCORES, TRAJECTORIES


def scenarios_table(scenarios: Sequence[Scenario]) -> pa.Table:
    rows = [
        {
            "scenario_id": scenario.scenario_id,
            "position": position,
            "payload": (payload := to_json(scenario.payload)),
            "metadata": to_json(scenario.metadata),
            "digest": hashlib.sha256(f"{scenario.scenario_id}\0{payload}".encode()).hexdigest(),
        }
        for position, scenario in enumerate(scenarios)
    ]
    return pa.Table.from_pylist(rows, schema=SCENARIOS.schema)


def scenarios_from(table: pa.Table) -> list[Scenario]:
    return [
        Scenario(row["scenario_id"], json.loads(row["payload"]), json.loads(row["metadata"]))
        for row in table.sort_by("position").to_pylist()
    ]


def trajectories_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    return pa.Table.from_pylist([_trajectory_row(t) for t in trajectories], schema=TRAJECTORIES.schema)


def trajectories_from(table: pa.Table, *, run: str, step: int, split: str) -> list[Trajectory]:
    """Records of one file; its partitions are passed, since they stand in its path."""
    return [_trajectory(row, run, step, split) for row in table.to_pylist(maps_as_pydicts="strict")]


def scores_table(scores: Iterable[Score], scorer_digest: str) -> pa.Table:
    rows = [
        {
            "trajectory_id": score.trajectory_id,
            "scorer_digest": scorer_digest,
            "reward": score.reward,
            "components": dict(score.components),
            "explanation": score.explanation,
            "error": score.error,
            "judge_call_ids": list(score.judge_call_ids),
        }
        for score in scores
    ]
    return pa.Table.from_pylist(rows, schema=SCORES.schema)


def judge_calls_table(calls: Iterable[JudgeCall]) -> pa.Table:
    rows = [{**vars(call), "trajectory_ids": list(call.trajectory_ids)} for call in calls]
    return pa.Table.from_pylist(rows, schema=JUDGE_CALLS.schema)


def to_json(value: Any) -> str:
    """Canonical JSON: equal values give equal text. NaN and Infinity are refused (ValueError)."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _trajectory_row(t: Trajectory) -> dict[str, Any]:
    return {
        "trajectory_id": t.trajectory_id,
        "group_id": t.key.group_id,
        "scenario_id": t.key.scenario_id,
        "group_no": t.key.group_no,
        "sample_no": t.sample_no,
        "seat": t.seat,
        "match_id": t.match_id,
        "policy_version": t.policy_version,
        "temperature": t.temperature,
        "messages": [_message_row(message) for message in t.messages],
        "token_ids": t.token_ids,
        "mask": t.mask,
        "logprobs": t.logprobs,
        "segment_starts": t.segment_starts,
        "turns": [vars(turn) for turn in t.turns],
        "prompt_digest": t.prompt_digest,
        "stop_reason": str(t.stop_reason),
        "error": t.error,
        "environment_reward": t.environment_reward,
        "metrics": dict(t.metrics),
        "metadata": to_json(t.metadata),
        "started_at": t.started_at,
        "seconds": t.seconds,
    }


def _message_row(message: Message) -> dict[str, Any]:
    return {**vars(message), "tool_calls": [vars(call) for call in message.tool_calls]}


def _trajectory(row: dict[str, Any], run: str, step: int, split: str) -> Trajectory:
    return Trajectory(
        key=GroupKey(run, step, split, row["scenario_id"], row["group_no"]),
        sample_no=row["sample_no"],
        policy_version=row["policy_version"],
        temperature=row["temperature"],
        messages=tuple(_message(message) for message in row["messages"]),
        token_ids=tuple(row["token_ids"]),
        mask=tuple(row["mask"]),
        logprobs=tuple(row["logprobs"]),
        segment_starts=tuple(row["segment_starts"]),
        turns=tuple(Turn(**turn) for turn in row["turns"]),
        prompt_digest=row["prompt_digest"],
        stop_reason=StopReason(row["stop_reason"]),
        error=row["error"],
        environment_reward=row["environment_reward"],
        metrics=row["metrics"],
        metadata=json.loads(row["metadata"]),
        started_at=row["started_at"],
        seconds=row["seconds"],
        seat=row["seat"],
        match_id=row["match_id"],
    )


def _message(row: dict[str, Any]) -> Message:
    return Message(**{**row, "tool_calls": tuple(ToolCall(**call) for call in row["tool_calls"])})
