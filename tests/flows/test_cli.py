"""The command line refuses what is wrong in words: exit code 2, no traceback, nothing started."""

from __future__ import annotations

from storage.store import Store
from tests.flows.conftest import finish


def refuse(process, timeout: float = 400) -> str:
    """Wait for a process that must be refused; returns what it said."""
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 2, output
    assert "Traceback" not in output
    return output


def test_a_wrong_config_is_refused_before_anything_starts(tiny_config, rollmill, tmp_path):
    config = tiny_config(update={"learning_rat": 1}, environment={"name": "nowhere:Game"})
    said = refuse(rollmill("train", config))
    assert "2 mistakes" in said
    assert "Did you mean learning_rate?" in said
    assert "'nowhere:Game' cannot be imported" in said
    assert not (tmp_path / "store").exists()


def test_check_says_what_would_run(tiny_config, rollmill):
    assert "is sound: run r, 2 steps" in finish(rollmill("check", tiny_config()))


def test_an_unknown_run_is_named_with_the_runs_there_are(rollmill, tmp_path):
    (tmp_path / "store" / "runs").mkdir(parents=True)
    said = refuse(rollmill("stage", "score_rollouts", "nobody", "--step", 0, "--store", tmp_path / "store"))
    assert "There is no run 'nobody'" in said


def test_an_environment_that_cannot_be_replayed_ends_the_run_in_words(tiny_config, rollmill, tmp_path):
    """G8 (tinker 771): the members of a group began with different prompts."""
    config = tiny_config(
        environment={"name": "tests.flows.worlds:Unreplayable"},
        rollouts={"rollouts_per_group": 2, "max_turns": 1, "max_tokens_per_turn": 4, "retries": 0},
        validation={"at_start": False},
    )
    said = refuse(rollmill("train", config))
    assert "began with 2 different prompts in one group" in said
    assert Store(tmp_path / "store").adapter_steps("r") == [0]


def test_a_stage_is_run_again_and_what_it_replaces_is_kept(tiny_config, rollmill, tmp_path):
    """Also: another configuration under the same name is refused, and a second writer."""
    config = tiny_config(validation={"at_start": False, "every": None}, steps=1)
    finish(rollmill("train", config))
    store = Store(tmp_path / "store")

    finish(rollmill("stage", "collect_rollouts", "r", "--step", 0, "--store", store.root))
    assert len(list(store.root.glob("_replaced/*/trajectories/**/data.parquet"))) == 1

    said = refuse(rollmill("train", tiny_config(steps=1, seed=5)))
    assert "seed: 0 in the store, 5 now" in said

    with store.writer("r"):
        said = refuse(rollmill("stage", "score_rollouts", "r", "--step", 0, "--store", store.root))
    assert "is being written by process" in said
