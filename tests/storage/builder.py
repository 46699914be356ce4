"""A small store as a run would leave it, made through the store's own interface. No model, no Prefect."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.codec import scenarios_table, scores_table, trajectories_table
from storage.files import digest_tree
from storage.layout import StageKey, adapter_folder, data_file
from storage.records import GroupKey, Message, Scenario, Score, StopReason, ToolCall, Trajectory, Turn
from storage.schemas import JUDGE_CALLS, SCENARIOS, SCORES, TOKEN_STATS, TRAJECTORIES, UPDATES
from storage.stages import Stage, begin_stage
from storage.store import Store

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCORER = "environment"
SCENARIO_IDS = ("easy", "it's hard", 'tricky "100%"')


def trajectory(
    key: GroupKey,
    sample_no: int,
    *,
    reward: float | None = 0.0,
    turns: int = 2,
    tokens: int = 3,
    stop_reason: StopReason = StopReason.COMPLETED,
    finish_reason: str = "stop",
    metrics: Mapping[str, float] | None = None,
) -> Trajectory:
    """An episode of `turns` replies of `tokens` tokens, each behind two tokens of glue or prompt."""
    draw = random.Random(f"{key}/{sample_no}")
    prompt, token_ids, mask, logprobs, said, played = [7, len(key.scenario_id)], [], [], [], [], []
    messages = [Message("user", f"Play {key.scenario_id}.")]
    for turn in range(turns):
        token_ids += prompt if turn == 0 else [8, 9]
        mask += [False, False]
        logprobs += [None, None]
        start = len(token_ids)
        token_ids += [draw.randrange(10, 90) for _ in range(tokens)]
        mask += [True] * tokens
        # Exact in float32, so that a round trip gives the same number.
        logprobs += [-draw.randrange(1, 64) / 32 for _ in range(tokens)]
        call = ToolCall(f"call-{turn}", "guess", f'{{"n": {turn}}}')
        said = [
            Message("assistant", f"guess {turn} of {sample_no}", tool_calls=(call,)),
            Message("tool", "Error: too low" if turn == 0 else "ok", tool_call_id=call.id),
        ]
        messages += said
        played.append(
            Turn(
                turn=turn,
                segment=0,
                start=start,
                end=len(token_ids),
                finish_reason=finish_reason,
                policy_version=key.step,
                seed=key.seed(sample_no, turn),
                reward=reward if turn == turns - 1 else None,
                started_at=START + timedelta(seconds=turn),
                seconds=0.5,
            )
        )
    return Trajectory(
        key=key,
        sample_no=sample_no,
        policy_version=key.step,
        messages=tuple(messages),
        token_ids=tuple(token_ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        segment_starts=(0,),
        turns=tuple(played),
        prompt_digest=f"prompt-{key.scenario_id}",
        stop_reason=stop_reason,
        started_at=START,
        seconds=1.0 + sample_no,
        temperature=1.0,
        error="it broke" if stop_reason.is_failure else None,
        environment_reward=reward,
        metrics=metrics or {},
    )


def members(run: str, step: int, split: str, *, size: int = 4) -> list[Trajectory]:
    """A step's rollouts: one group with a failed rollout, one of mixed rewards, one of equal rewards."""
    rollouts = []
    for number, scenario_id in enumerate(SCENARIO_IDS):
        key = GroupKey(run, step, split, scenario_id, 0)
        for sample_no in range(size):
            failed = number == 0 and sample_no == size - 1
            rollouts.append(
                trajectory(
                    key,
                    sample_no,
                    reward=None if failed else [1.0 + step, float(sample_no), 0.0][number],
                    turns=0 if failed else 2 + sample_no % 2,
                    stop_reason=StopReason.ENVIRONMENT_ERROR if failed else StopReason.COMPLETED,
                    finish_reason="length" if number == 2 else "stop",
                    metrics={"guesses": float(sample_no)} if sample_no else {},
                )
            )
    # The first scenario's rewards differ, so that its group trains too.
    rollouts[0] = replace(rollouts[0], environment_reward=0.25)
    return rollouts


def scores_of(rollouts: Sequence[Trajectory], scorer: str = SCORER) -> list[Score]:
    return [
        Score(
            t.trajectory_id,
            scorer,
            None if t.stop_reason.is_failure else t.environment_reward,
            components={"length": float(len(t.token_ids))},
            error="the rollout failed" if t.stop_reason.is_failure else None,
        )
        for t in rollouts
    ]


def token_stats_of(rollouts: Sequence[Trajectory]) -> pa.Table:
    rows = []
    for t in rollouts:
        if t.stop_reason.is_failure:
            continue
        positions = [index for index, sampled in enumerate(t.mask) if sampled]
        trainer = [t.logprobs[p] + (0.03125 if p % 2 else 0.0) for p in positions]
        rows.append(
            {
                "trajectory_id": t.trajectory_id,
                "positions": positions,
                "trainer_logprobs": trainer,
                "reference_logprobs": None,
                "entropies": [0.5] * len(positions),
                "ratios": [math.exp(new - t.logprobs[p]) for p, new in zip(positions, trainer, strict=True)],
                "advantages": [1.0] * len(positions),
            }
        )
    return pa.Table.from_pylist(rows, schema=TOKEN_STATS.schema)


def updates_of(rollouts: Sequence[Trajectory]) -> pa.Table:
    tokens = sum(sum(t.mask) for t in rollouts)
    return pa.Table.from_pylist(
        [
            {
                "optimizer_step": number,
                "loss": 0.25 * (number + 1),
                "grad_norm": 2.0,
                "learning_rate": 1e-5,
                "skipped": None,
                "trajectories": len(rollouts),
                "tokens": tokens * (number + 1),
                "forward_tokens": tokens * 2,
                "metrics": {
                    "clip_ratio/low_mean": 0.1 * (number + 1),
                    "clip_ratio/high_max": 0.5 - number / 8,
                },
                "seconds": 0.1,
            }
            for number in range(2)
        ],
        schema=UPDATES.schema,
    )


def judge_calls_of(rollouts: Sequence[Trajectory]) -> pa.Table:
    row: dict[str, Any] = {
        "judge_call_id": f"call-{rollouts[0].trajectory_id}",
        "model": "judge",
        "prompt_version": "v1",
        "attempt": 0,
        "group_id": rollouts[0].key.group_id,
        "trajectory_ids": [t.trajectory_id for t in rollouts],
        "request": "[]",
        "reply": "0.5",
        "error": None,
        "cached": False,
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cost": 0.01,
        "started_at": START,
        "seconds": 1.0,
    }
    return pa.Table.from_pylist([row], schema=JUDGE_CALLS.schema)


def write_adapter(stage: Stage, store: Store, run: str, step: int) -> None:
    folder = store.files.scratch(stage.key.folder)
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_text(f"weights of {step}")
    manifest = {
        "run": run,
        "step": step,
        "parent": step - 1 if step else None,
        "base": "tiny",
        "created_at": START.isoformat(),
        "code_version": "0.1.0",
        "config_digest": "c0ffee",
        "inputs": dict(stage.inputs),
        "files": {file.name: digest_tree(file) for file in sorted(folder.iterdir())},
        "probe": {"token_ids": [1, 2], "logprobs": [-0.5]},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    stage.publish_folder(folder, adapter_folder(run, step))


def open_stage(store: Store, key: StageKey, inputs: Sequence[str] = (), settings: Any = ()) -> Stage:
    stage = begin_stage(store, key, inputs=inputs, settings=settings, rerun=True)
    assert stage is not None
    return stage


def collect_and_score(store: Store, run: str, step: int, split: str) -> list[Trajectory]:
    where, rollouts = {"run": run, "step": step, "split": split}, members(run, step, split)
    scenarios = data_file(SCENARIOS, run=run, split=split)
    with open_stage(
        store, StageKey(run, "collect_rollouts", step, split), [scenarios, adapter_folder(run, step)]
    ) as stage:
        stage.publish_table(TRAJECTORIES, trajectories_table(rollouts), **where)
    with open_stage(
        store,
        StageKey(run, "score_rollouts", step, split, SCORER),
        [data_file(TRAJECTORIES, **where), scenarios],
    ) as stage:
        stage.publish_table(SCORES, scores_table(scores_of(rollouts), "d1"), **where, scorer=SCORER)
    return rollouts


def build_run(store: Store, run: str = "demo", steps: int = 2) -> Store:
    """A run of `steps` updates, with validation of every adapter; the second scorer judged step 0."""
    store.write_run(
        run,
        {
            "run": run,
            "created_at": START.isoformat(),
            "code_version": "0.1.0",
            "config": {"name": run, "reward": {"scorer": SCORER, "args": {}}},
            "scorer": SCORER,
            "parent": None,
            "mlflow_run_id": None,
        },
    )
    with open_stage(store, StageKey(run, "generate_scenarios")) as stage:
        for split in ("train", "validation"):
            table = scenarios_table([Scenario(name, {"n": 1}) for name in SCENARIO_IDS])
            stage.publish_table(SCENARIOS, table, run=run, split=split)
    with open_stage(store, StageKey(run, "initialise_policy", 0)) as stage:
        write_adapter(stage, store, run, 0)
    for step in range(steps):
        collect_and_score(store, run, step, "validation")
        rollouts = collect_and_score(store, run, step, "train")
        where = {"run": run, "step": step, "split": "train"}
        inputs = [
            data_file(TRAJECTORIES, **where),
            data_file(SCORES, **where, scorer=SCORER),
            adapter_folder(run, step),
        ]
        with open_stage(store, StageKey(run, "update_policy", step), inputs) as stage:
            stage.publish_table(TOKEN_STATS, token_stats_of(rollouts), run=run, step=step)
            stage.publish_table(UPDATES, updates_of(rollouts), run=run, step=step)
            write_adapter(stage, store, run, step + 1)
    where = {"run": run, "step": 0, "split": "train"}
    first = members(run, 0, "train")
    with open_stage(
        store, StageKey(run, "score_rollouts", 0, "train", "judge"), [data_file(TRAJECTORIES, **where)]
    ) as stage:
        judged = [replace(s, scorer="judge", reward=0.5) for s in scores_of(first)]
        stage.publish_table(SCORES, scores_table(judged, "d2"), **where, scorer="judge")
        stage.publish_table(JUDGE_CALLS, judge_calls_of(first), **where, scorer="judge")
    return store


def make_store(root: Path, run: str = "demo", steps: int = 2) -> Store:
    return build_run(Store(root), run, steps)
