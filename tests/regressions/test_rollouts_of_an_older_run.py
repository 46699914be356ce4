"""R2 (prime-rl 2304): a fresh run in a folder with an older run's rollouts trained on those."""

import pytest

from storage.catalog import connect
from storage.errors import StoreError
from storage.gates import check_gates
from storage.questions import ask, list_questions
from storage.schemas import TRAJECTORIES
from storage.store import Store
from tests.storage.builder import SCORER, build_run


@pytest.fixture
def store(tmp_path):
    return build_run(build_run(Store(tmp_path), "older"), "old")


def test_a_fresh_run_reads_nothing_of_another(store):
    where = {"run": "fresh", "step": 0, "split": "train"}
    assert not store.has(TRAJECTORIES, **where)
    with pytest.raises(StoreError, match="is not in"):
        store.read(TRAJECTORIES, **where)
    assert store.adapter_steps("fresh") == []


def test_runs_with_a_common_beginning_of_their_names_do_not_mix(store):
    with connect(store.root) as connection:
        alone = {
            question.name: ask(connection, question, run="old").to_pylist() for question in list_questions()
        }
    assert all(row["run"] == "old" for rows in alone.values() for row in rows)
    check_gates(store, "old", 0, SCORER, scored_by="old")


def test_the_same_scenario_of_two_runs_has_ids_of_its_own(store):
    with connect(store.root) as connection:
        (double,) = connection.execute(
            "SELECT count(*) FROM (SELECT trajectory_id FROM trajectories GROUP BY 1 HAVING count(*) > 1)"
        ).fetchone()
    assert double == 0
