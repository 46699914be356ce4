"""R3 and R1, whole kinds: wherever a run dies, the same command ends where an undisturbed run ends."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from storage.explain import explain_adapter
from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from storage.stages import StageState
from storage.status import run_status
from storage.store import Store
from tests.faults.crashes import Crash, start_run, was_killed
from tests.flows.conftest import tiny_document

FAULTS = int(os.environ.get("ROLLMILL_FAULTS", "8"))
STEPS = 2
FURTHEST = 40  # operations that a run gets to before it dies; it takes several deaths to its end


@pytest.fixture(scope="module")
def api_url(prefect_server) -> str:
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value()


def document(model: Path, root: Path, name: str = "r") -> dict[str, Any]:
    return tiny_document(
        model,
        root,
        name,
        environment={"name": "tests.flows.worlds:LengthGuess", "args": {"high": 16, "guesses": 2}},
        scenarios={"train": 8, "validation": 2},
        rollouts={"groups_per_step": 2, "rollouts_per_group": 2, "max_turns": 2, "max_tokens_per_turn": 4},
        validation={"at_start": False},
        # One database for all: making one takes MLflow longer than the whole run.
        tracking={"mlflow_uri": f"sqlite:///{root.parent / 'mlflow.db'}"},
    )


def outcome(root: Path, run: str = "r") -> dict[str, Any]:
    """What must not depend on where a run died. Fails when something is doubled, missing or half written."""
    store = Store(root)
    found: dict[str, Any] = {"adapters": store.adapter_steps(run)}
    for split, steps in (("train", range(STEPS)), ("validation", [STEPS])):
        found[split] = store.read(SCENARIOS, run=run, split=split).to_pylist()
        for step in steps:
            where = {"run": run, "step": step, "split": split}
            rows = store.read(TRAJECTORIES, **where).to_pylist()
            scores = store.read(SCORES, **where, scorer="environment").to_pylist()
            found[split, step] = (
                [
                    (row["trajectory_id"], row["turns"][0]["seed"], row["token_ids"], row["prompt_digest"])
                    for row in rows
                ],
                [(score["trajectory_id"], score["reward"]) for score in scores],
            )
    assert {status.state for status in run_status(store, run)} == {StageState.CURRENT}
    for step in found["adapters"]:
        assert not explain_adapter(store, run, step).mismatches
    assert not list((root / "_staging").rglob("group-*"))
    assert not list(root.glob("_replaced/*/trajectories/**/*.parquet")), "rollouts were sampled twice"
    return found


def test_a_run_that_dies_anywhere_ends_where_an_undisturbed_one_ends(tiny_model, api_url, tmp_path):
    assert not was_killed(start_run(document(tiny_model, tmp_path / "undisturbed"), api_url, None))
    expected = outcome(tmp_path / "undisturbed")

    draw, faults, runs = random.Random("killed anywhere"), 0, 0
    while faults < FAULTS:
        root = tmp_path / f"store-{runs}"
        crashes = []
        while True:
            crash = Crash(draw.randint(1, FURTHEST), after=draw.random() < 0.5)
            crashes.append(crash)
            if not was_killed(start_run(document(tiny_model, root), api_url, crash)):
                break
            # Whatever is committed can be used, at any time.
            store = Store(root)
            for step in store.adapter_steps("r"):
                assert store.read_manifest("r", step)["step"] == step
            faults += 1
        assert outcome(root) == expected, crashes
        runs += 1


def test_two_runs_in_one_store_work_side_by_side(tiny_model, api_url, tmp_path):
    root = tmp_path / "store"
    both = [start_run(document(tiny_model, root, name), api_url, None) for name in ("a", "b")]
    assert [was_killed(process) for process in both] == [False, False]
    for name in ("a", "b"):
        outcome(root, name)
