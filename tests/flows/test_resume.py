"""R3 (verl 4199, OpenRLHF 1322, NeMo-RL 3599): kill -9, then the same command: nothing is lost or doubled."""

from __future__ import annotations

import json
import time

from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from storage.store import Store
from tests.flows.conftest import finish, kill_group

STEPS = 2


def rows(store: Store, run: str) -> dict:
    """What must not depend on interruptions: keys, seeds, scenarios and prompts of every rollout."""
    found = {}
    for split, steps in (("train", range(STEPS)), ("validation", (0, STEPS))):
        scenarios = store.read(SCENARIOS, run=run, split=split)["scenario_id"].to_pylist()
        for step in steps:
            where = {"run": run, "step": step, "split": split}
            table = store.read(TRAJECTORIES, **where).to_pylist()
            scored = store.read(SCORES, **where, scorer="environment")["trajectory_id"].to_pylist()
            assert scored == [row["trajectory_id"] for row in table]
            found[split, step] = (
                scenarios,
                [
                    (
                        row["scenario_id"],
                        row["group_no"],
                        row["sample_no"],
                        row["prompt_digest"],
                        row["policy_version"],
                        row["turns"][0]["seed"],
                    )
                    for row in table
                ],
            )
    return found


def wait_for(condition, process, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, "what the test waited for did not come"
        time.sleep(0.005)


def test_a_run_killed_three_times_ends_where_an_uninterrupted_one_ends(tiny_config, rollmill, tmp_path):
    config, store = tiny_config(), Store(tmp_path / "store")

    def stage_is(name: str, state: str) -> bool:
        text = store.files.read_text(f"stages/run=r/{name}.json")
        return text is not None and json.loads(text)["state"] == state

    def staged() -> list[str]:
        return sorted(f.name for f in (store.root / "_staging").glob("run=r/step=000000/train/*/group-*"))

    # During rollouts: one group is done, others are not.
    process = rollmill("train", config)
    wait_for(lambda: staged(), process)
    kill_group(process)
    kept = staged()
    assert 0 < len(kept) < 4

    # During the update.
    process = rollmill("train", config)
    wait_for(lambda: stage_is("step=000000/update_policy", "running"), process)
    kill_group(process)
    assert store.adapter_steps("r") == [0]

    # Between two stages.
    process = rollmill("train", config)
    wait_for(lambda: stage_is("step=000001/score_rollouts.train.environment", "completed"), process)
    kill_group(process)

    finish(rollmill("train", config))
    uninterrupted = tiny_config("u", store=str(tmp_path / "other"))
    document = uninterrupted.read_text().replace("name: u", "name: r")
    uninterrupted.write_text(document)
    finish(rollmill("train", uninterrupted))

    assert rows(store, "r") == rows(Store(tmp_path / "other"), "r")
    assert store.adapter_steps("r") == [0, 1, 2]
    assert not list((store.root / "_staging").rglob("group-*"))
    assert not list(store.root.glob("_replaced/*/trajectories/**/*.parquet"))
