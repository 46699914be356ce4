"""A stage is done again from the middle of a run, and a run goes its own way from the middle of another."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from typer.testing import CliRunner

from flows.cli import app
from storage.catalog import connect
from storage.errors import ConfigError, StoreError
from storage.explain import explain_adapter
from storage.schemas import SCORES, TOKEN_STATS, TRAJECTORIES
from storage.stages import StageState
from storage.status import run_status
from storage.store import Store
from tasks.run import Run
from tasks.settings import RunConfig
from tests.flows.conftest import tiny_document

WORLD = {"name": "tests.flows.worlds:LengthGuess", "args": {"high": 16, "guesses": 2}}


def length(trajectory, scenario):
    return len(trajectory.messages[-1].content or "") / 7


@pytest.fixture(scope="module")
def finished(tiny_model, prefect_server, tmp_path_factory):
    """The store of a finished run `r` of two steps."""
    from flows.train import train

    root = tmp_path_factory.mktemp("finished") / "store"
    document = tiny_document(tiny_model, root, environment=WORLD)
    asyncio.run(train(RunConfig.model_validate(document)))
    return root


@pytest.fixture
def trained(finished, tmp_path):
    """A copy of that store."""
    shutil.copytree(finished, tmp_path / "store")
    return Store(tmp_path / "store")


def states(store: Store, run: str = "r") -> dict[str, StageState]:
    return {str(status.key): status.state for status in run_status(store, run)}


def invoke(store: Store, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--store", str(store.root)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_rerun_does_a_stage_again_and_what_was_made_from_it(trained):
    before = {d: trained.digest(f"trajectories/run=r/step=00000{d}/split=train/data.parquet") for d in (0, 1)}
    first = trained.digest("adapters/run=r/step=000001/adapter_model.safetensors")

    # The same scores again: nothing that was made from them is stale, so nothing else is done.
    invoke(trained, "rerun", "r", "--from", "score_rollouts", "--step", "0")
    assert trained.digest("adapters/run=r/step=000001/adapter_model.safetensors") == first

    # Other rollouts: the update, and the whole next step.
    invoke(trained, "rerun", "r", "--from", "collect_rollouts", "--step", "0", "--through", "0")
    stale = [key for key, state in states(trained).items() if state is StageState.STALE]
    assert "collect_rollouts of r (step 1, train)" in stale
    assert "collect_rollouts of r (step 0, train)" not in stale
    with pytest.raises(StoreError, match="resume r --stale rerun"):
        Run.load(str(trained.root), "r").first_open_step()

    invoke(trained, "resume", "r", "--stale", "rerun")
    assert set(states(trained).values()) == {StageState.CURRENT}
    after = {d: trained.digest(f"trajectories/run=r/step=00000{d}/split=train/data.parquet") for d in (0, 1)}
    assert all(before[d] != after[d] for d in (0, 1))
    replaced = {path.parent.parent.name for path in trained.root.glob("_replaced/*/trajectories/run=r/*/*/*")}
    assert replaced == {"step=000000", "step=000001", "step=000002"}


def test_stale_stages_can_be_taken_as_they_are(trained):
    invoke(trained, "rerun", "r", "--from", "collect_rollouts", "--step", "0", "--through", "0")
    output = invoke(trained, "accept", "r")
    assert "accepted: collect_rollouts of r (step 1, train)" in output
    assert set(states(trained).values()) == {StageState.CURRENT}
    assert Run.load(str(trained.root), "r").first_open_step() == 1
    record = trained.files.read_text("stages/run=r/step=000001/collect_rollouts.train.json")
    assert '"accepted"' in record
    with connect(trained.root) as connection:
        [(changed,)] = connection.sql(
            "SELECT map_keys(accepted) FROM stages "
            "WHERE stage = 'collect_rollouts' AND step = 1 AND split = 'train'"
        ).fetchall()
    assert changed == ["adapters/run=r/step=000001"]


def test_fork_with_another_reward_trains_on_the_same_rollouts(trained):
    setting = "reward.scorer=tests.flows.test_rerun_and_fork:length"
    invoke(trained, "fork", "r", "--step", "1", "--as", "longer", "--set", setting)
    untouched = {path: path.read_bytes() for path in trained.root.rglob("run=r/**/*.parquet")}
    invoke(trained, "resume", "longer")

    assert trained.adapter_steps("longer") == [2]
    where = {"run": "longer", "step": 1}
    assert not trained.has(TRAJECTORIES, **where, split="train")
    sampled = trained.read(TRAJECTORIES, run="r", step=1, split="train")["trajectory_id"].to_pylist()
    [scorer] = [path.name for path in trained.root.glob("scores/run=longer/step=000001/split=train/*")]
    scores = trained.read(SCORES, **where, split="train", scorer=scorer.removeprefix("scorer="))
    assert scores["trajectory_id"].to_pylist() == sampled
    assert set(trained.read(TOKEN_STATS, **where)["trajectory_id"].to_pylist()) <= set(sampled)
    assert all(path.read_bytes() == content for path, content in untouched.items())

    # SQL shows the shared rollouts where the fork used them, and counts what was sampled once.
    with connect(trained.root) as connection:
        assert connection.sql("SELECT count(*) FROM trajectories WHERE run = 'longer'").fetchall() == [(8,)]
        assert connection.sql(
            "SELECT sampled_by, split, count(*) FROM rollouts WHERE run = 'longer' GROUP BY ALL ORDER BY ALL"
        ).fetchall() == [("longer", "validation", 8), ("r", "train", 8)]
        assert connection.sql(
            "SELECT count(*) FROM rewards WHERE run = 'longer' AND step = 1 AND split = 'train'"
        ).fetchall() == [(8,)]
        [(own, tokens)] = connection.sql(
            "SELECT count(DISTINCT trajectory_id), count(advantage) FROM tokens WHERE run = 'longer' "
            "AND step = 1 AND split = 'train' AND mask"
        ).fetchall()
        assert own == 8
        assert tokens > 0

    found = explain_adapter(trained, "longer", 2)
    assert [(parent["run"], parent["step"]) for parent in found.parents] == [("r", 1), ("r", 0)]
    assert found.rollouts["rollouts"] == 8
    assert not found.mismatches


def test_fork_that_changes_how_is_sampled_samples_its_own(trained):
    invoke(trained, "fork", "r", "--step", "1", "--as", "hotter", "--set", "rollouts.temperature=1.5")
    invoke(trained, "resume", "hotter")
    assert (
        trained.read(TRAJECTORIES, run="hotter", step=1, split="train")["temperature"].to_pylist()
        == [1.5] * 8
    )
    assert trained.adapter_steps("hotter") == [2]


def test_fork_of_a_fork_goes_back_to_what_was_sampled(trained):
    invoke(trained, "fork", "r", "--step", "1", "--as", "a", "--set", "update.loss=grpo")
    invoke(trained, "fork", "a", "--step", "1", "--as", "b", "--set", "update.loss=cispo")
    run = Run.load(str(trained.root), "b")
    assert (run.parent.run, run.parent.adapter, run.parent.scenarios, run.parent.rollouts) == (
        "a",
        "r",
        "r",
        "r",
    )


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["--as", "r", "--step", "1"], StoreError, "already"),
        (["--as", "x", "--step", "7"], StoreError, "no adapter of step 7"),
        (["--as", "x", "--step", "1", "--set", "model.lora.rank=2"], ConfigError, "model must be the same"),
        (["--as", "x", "--step", "1", "--set", "steps=1"], ConfigError, "not beyond step 1"),
        (["--as", "x", "--set", "update.los=grpo"], ConfigError, "Did you mean loss"),
        (["--as", "../x"], ConfigError, "name"),
    ],
)
def test_forks_that_cannot_be_are_refused(trained, arguments, error, words):
    with pytest.raises(error, match=words):
        invoke(trained, "fork", "r", *arguments)
    assert trained.run_names() == ["r"]


def test_rerun_of_what_never_ran_is_refused(trained):
    with pytest.raises(StoreError, match="has not done update_policy of step 9"):
        invoke(trained, "rerun", "r", "--from", "update_policy", "--step", "9")
