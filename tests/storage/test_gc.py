import os
import time

import pytest

from storage.errors import StoreError
from storage.gc import Retention, plan_removals, remove
from storage.layout import adapter_folder
from storage.schemas import SCORES
from storage.status import run_status
from tests.storage.builder import SCORER, make_store

NOW = Retention(replaced_days=0.0, last_adapters=2)


@pytest.fixture
def long(tmp_path):
    return make_store(tmp_path / "store", steps=5)


def paths(store, policy=NOW, **kwargs):
    return [removal.path for removal in plan_removals(store, policy, **kwargs)]


def test_nothing_young_or_referred_to_is_removed(store):
    assert paths(store, Retention()) == []


def test_first_and_last_adapters_are_kept(long):
    assert paths(long) == [adapter_folder("demo", step) for step in (1, 2, 3)]


def test_each_so_many_th_adapter_is_kept(long):
    assert paths(long, Retention(0.0, 2, every=2)) == [adapter_folder("demo", step) for step in (1, 3)]


def test_adapter_that_another_run_was_forked_from_is_kept(long):
    long.write_run("fork", {**long.read_run("demo"), "run": "fork", "parent": {"run": "demo", "step": 2}})
    assert adapter_folder("demo", 2) not in paths(long)


def test_adapter_that_the_caller_names_is_kept(long):
    assert paths(long, keep=[("demo", 1), ("demo", 3)]) == [adapter_folder("demo", 2)]


def test_fewer_adapters_than_a_run_needs_are_refused():
    with pytest.raises(StoreError, match="last 2 adapters"):
        Retention(last_adapters=1)


def test_replaced_files_go_when_they_are_old_enough(store):
    where = {"run": "demo", "step": 0, "split": "train", "scorer": SCORER}
    store.publish_table(SCORES, store.read(SCORES, **where)[:-1], **where)  # other content
    (folder,) = (store.root / "_replaced").iterdir()
    assert paths(store, Retention(replaced_days=1.0)) == []
    old = time.time() - 2 * 86_400
    os.utime(folder, (old, old))
    assert paths(store, Retention(replaced_days=1.0)) == [f"_replaced/{folder.name}"]


def test_unfinished_work_goes_and_whole_groups_stay(store):
    built = store.files.scratch("run=demo/step=000001/train/abc", ".parquet")
    built.write_bytes(b"half")
    (built.parent / "group-1.parquet").write_bytes(b"whole")
    assert paths(store) == [built.relative_to(store.root).as_posix()]


def test_removing_keeps_everything_current(long):
    removals = plan_removals(long, NOW)
    assert all(removal.size > 0 for removal in removals)
    remove(long, removals)
    assert long.adapter_steps("demo") == [0, 4, 5]
    assert {str(status.state) for status in run_status(long, "demo")} == {"current"}


def test_run_that_is_being_written_keeps_its_adapters(long):
    with long.writer("demo"), pytest.raises(StoreError, match="is being written"):
        remove(long, plan_removals(long, NOW))
    assert long.adapter_steps("demo") == [0, 1, 2, 3, 4, 5]
