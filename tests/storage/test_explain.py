import pytest

from storage.errors import StoreError
from storage.explain import explain_adapter
from storage.layout import adapter_folder, data_file
from storage.lookup import find_trajectory, stored_trajectories
from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from tests.storage.builder import SCORER, members

TRAIN = {"run": "demo", "step": 1, "split": "train"}


def test_adapter_explains_itself_from_files_that_are_as_recorded(store):
    found = explain_adapter(store, "demo", 2)
    assert found.mismatches == []
    assert {item.path for item in found.evidence} == {
        f"{adapter_folder('demo', 2)}/adapter_model.safetensors",
        adapter_folder("demo", 2),
        data_file(TRAJECTORIES, **TRAIN),
        data_file(SCORES, **TRAIN, scorer=SCORER),
        adapter_folder("demo", 1),
        data_file(SCENARIOS, run="demo", split="train"),
    }
    assert (found.rollouts["rollouts"], found.rollouts["failed"], found.rollouts["policy_versions"]) == (
        12,
        1,
        [1],
    )
    assert [scorer["scorer"] for scorer in found.scorers] == [SCORER]
    assert [manifest["step"] for manifest in found.parents] == [1, 0]
    assert found.run["config"]["reward"]["scorer"] == SCORER


def test_judge_behind_an_adapter_is_named(store):
    (judge,) = explain_adapter(store, "demo", 1).judges
    assert (judge["scorer"], judge["model"], judge["prompt_version"], judge["calls"]) == (
        "judge",
        "judge",
        "v1",
        1,
    )


def test_first_adapter_was_made_from_nothing(store):
    found = explain_adapter(store, "demo", 0)
    assert (found.parents, found.scorers, found.rollouts["rollouts"]) == ((), (), 0)


@pytest.mark.parametrize(
    "path",
    [
        f"{adapter_folder('demo', 2)}/adapter_model.safetensors",
        data_file(TRAJECTORIES, **TRAIN),
        data_file(SCORES, **TRAIN, scorer=SCORER),
        data_file(SCENARIOS, run="demo", split="train"),
        f"{adapter_folder('demo', 1)}/adapter_model.safetensors",
    ],
)
def test_file_that_was_changed_is_shown(path, store):
    with store.files.path(path).open("ab") as file:
        file.write(b"\n")
    changed = explain_adapter(store, "demo", 2).mismatches
    assert changed
    assert all(path.startswith(item.path) or item.path.startswith(path) for item in changed)
    assert {item.verdict for item in changed} == {"CHANGED"}


def test_file_that_is_gone_is_missing(store):
    store.files.remove(f"{adapter_folder('demo', 2)}/adapter_model.safetensors")
    verdicts = {item.path: item.verdict for item in explain_adapter(store, "demo", 2).evidence}
    assert verdicts[f"{adapter_folder('demo', 2)}/adapter_model.safetensors"] == "missing"


def test_adapter_that_is_not_there_is_refused(store):
    with pytest.raises(StoreError, match="no adapter of step 9"):
        explain_adapter(store, "demo", 9)


def test_trajectory_is_found_by_the_beginning_of_its_id(store):
    expected = members("demo", 1, "train")[5]
    found = find_trajectory(store, expected.trajectory_id[:12], tokens=True)
    assert found.trajectory == expected
    assert [reward["scorer"] for reward in found.rewards] == [SCORER]
    assert [row["token_id"] for row in found.tokens] == list(expected.token_ids)


def test_ambiguous_and_unknown_ids_are_refused(store):
    with pytest.raises(StoreError, match="Several trajectories"):
        find_trajectory(store, "")
    with pytest.raises(StoreError, match="No trajectory"):
        find_trajectory(store, "x' OR 1=1 --")


def test_stored_trajectories_come_in_order_of_their_steps(store):
    found = list(stored_trajectories(store, "demo"))
    assert found == [*members("demo", 0, "train"), *members("demo", 1, "train")]
    assert list(stored_trajectories(store, "demo", step=1)) == members("demo", 1, "train")
