"""States of stages, and what a run's status says of them."""

import pytest

from storage.errors import StoreError
from storage.layout import StageKey, adapter_folder, data_file
from storage.schemas import SCENARIOS, SCORES, TRAJECTORIES
from storage.stages import StageState, begin_stage, digest_settings, read_record, stage_state
from storage.status import run_status
from tests.storage.builder import SCORER, collect_and_score

TRAIN = {"run": "demo", "step": 1, "split": "train"}
KEY = StageKey("demo", "score_rollouts", 1, "train", SCORER)
INPUTS = [data_file(TRAJECTORIES, **TRAIN), data_file(SCENARIOS, run="demo", split="train")]


def states(store):
    return {str(status.key): status for status in run_status(store, "demo")}


def begin(store, *, settings=(), rerun=False, inputs=INPUTS):
    return begin_stage(store, KEY, inputs=inputs, settings=settings, rerun=rerun)


def test_stage_done_from_the_same_inputs_is_not_done_again(store):
    assert begin(store) is None


def test_stage_can_be_done_again_by_wish(store):
    assert begin(store, rerun=True) is not None


def test_stage_of_other_settings_is_stale_and_refused(store):
    with pytest.raises(StoreError, match="its settings have changed"):
        begin(store, settings=["other"])


def test_stage_whose_input_changed_is_stale_and_refused(store):
    table = store.read(TRAJECTORIES, **TRAIN)
    store.publish_table(TRAJECTORIES, table.slice(0, 8), **TRAIN)
    with pytest.raises(StoreError, match=r"trajectories/.* is not what it was made from"):
        begin(store)


def test_stage_without_its_input_is_refused(store):
    with pytest.raises(StoreError, match="Run the stage before it"):
        begin(store, inputs=["nowhere/data.parquet"])


def test_stage_whose_output_is_gone_runs_again(store):
    store.files.remove(data_file(SCORES, **TRAIN, scorer=SCORER))
    assert begin(store) is not None


def test_interrupted_stage_runs_again(store):
    begin(store, rerun=True).__enter__()  # and then the process is killed
    record = read_record(store, KEY)
    state, reason = stage_state(store, KEY, record.inputs, digest_settings(()))
    assert state is StageState.INTERRUPTED
    assert "did not finish" in reason
    assert begin(store) is not None


def test_failed_stage_keeps_its_error_and_runs_again(store):
    with pytest.raises(ZeroDivisionError), begin(store, rerun=True):
        raise ZeroDivisionError("by nought")
    status = states(store)[str(KEY)]
    assert (status.state, status.reason) == (StageState.FAILED, "ZeroDivisionError: by nought")
    assert begin(store) is not None


def test_stage_that_never_ran_is_missing(store):
    key = StageKey("demo", "score_rollouts", 9, "train", SCORER)
    assert stage_state(store, key, {}, "")[0] is StageState.MISSING


def test_everything_of_an_untouched_run_is_current(store):
    assert {status.state for status in run_status(store, "demo")} == {StageState.CURRENT}


def test_status_follows_a_change_to_all_that_is_built_on_it(store):
    collect_and_score(store, "demo", 0, "train")  # the same rows: nothing differs but that it was done again
    assert {status.state for status in run_status(store, "demo")} == {StageState.CURRENT}
    table = store.read(TRAJECTORIES, run="demo", step=0, split="train")
    store.publish_table(TRAJECTORIES, table.slice(0, 8), run="demo", step=0, split="train")
    found = states(store)
    assert "is not what it was made from" in found["update_policy of demo (step 0)"].reason
    stale = {name for name, status in found.items() if status.state is StageState.STALE}
    # The adapter of step 1 comes from the update of step 0, and all of step 1 from that adapter.
    assert f"score_rollouts of demo (step 0, train, {SCORER})" in stale
    assert "collect_rollouts of demo (step 1, train)" in stale
    assert "update_policy of demo (step 1)" in stale
    assert "collect_rollouts of demo (step 0, train)" not in stale
    assert "generate_scenarios of demo ()" not in stale


def test_input_that_was_cleaned_up_makes_nothing_stale(store):
    store.files.remove(adapter_folder("demo", 1))
    found = states(store)
    assert found["collect_rollouts of demo (step 1, train)"].state is StageState.CURRENT
    assert "has been removed since" in found["collect_rollouts of demo (step 1, train)"].reason


def test_status_of_an_unknown_run_names_the_runs_there_are(store):
    with pytest.raises(StoreError, match="Its runs: demo"):
        run_status(store, "nope")


def test_broken_stage_record_is_named(store):
    store.files.write_text(KEY.record_file, "{")
    with pytest.raises(StoreError, match="cannot be read"):
        run_status(store, "demo")
