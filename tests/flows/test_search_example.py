"""The search example, as its config stands, with a tiny model and fewer steps."""

from storage.catalog import connect
from storage.store import Store
from tests.flows.conftest import ROOT, finish


def test_the_search_example_runs_two_steps(tiny_model, rollmill, tmp_path):
    settings = {
        "store": tmp_path / "store",
        "steps": 2,
        "model.base": tiny_model,
        "inference.engine": "transformers",
        "inference.enforce_eager": "false",
        "rollouts.groups_per_step": 2,
        "rollouts.rollouts_per_group": 2,
        "rollouts.max_tokens_per_turn": 8,
        "validation.max_scenarios": 2,
        "validation.rollouts_per_scenario": 1,
    }
    chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    finish(rollmill("train", ROOT / "examples" / "search" / "train.yaml", *chosen))
    assert Store(tmp_path / "store").adapter_steps("search") == [0, 1, 2]
    with connect(tmp_path / "store") as connection:
        [(rollouts, failed, graded)] = connection.execute(
            "SELECT count(*), count(*) FILTER (is_failure(stop_reason)), count(environment_reward) "
            "FROM trajectories"
        ).fetchall()
    assert (rollouts, failed, graded) == (12, 0, 12)  # two steps of four, and two validations of two
