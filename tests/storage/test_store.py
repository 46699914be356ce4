"""Publishing, names and leases: what a second process may see, and what it may not."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from storage.catalog import connect
from storage.codec import trajectories_table
from storage.errors import StoreError
from storage.layout import check_name, data_file, partition_folder
from storage.schemas import SCENARIOS, TRAJECTORIES
from storage.store import Store
from tests.storage.builder import members

WHERE = {"run": "demo", "step": 0, "split": "train"}
BAD_NAMES = [
    "",
    "it's",
    'a"b',
    "..",
    "../x",
    "a/b",
    "/etc",
    "sp ace",
    "100%",
    "new\nline",
    "run\n",
    "-x",
    "1",
    "é",
    "a" * 101,
]


def watch(root, stop, faults, reads):
    """Query without pause; whatever is not one whole file of 12 rows is a fault."""
    with connect(root) as connection:
        while not stop.is_set():
            try:
                rows = connection.execute(
                    "SELECT count(*), count(DISTINCT trajectory_id), count(DISTINCT seconds), max(error) "
                    "FROM trajectories"
                ).fetchone()
                described = connection.execute("SELECT code_version = mlflow_run_id FROM runs").fetchall()
            except Exception as error:
                faults.put(repr(error))
                return
            if rows[:3] not in ((0, 0, 0), (12, 12, 1)) or described not in ([], [(True,)]):
                faults.put(repr((rows, described)))
                return
            reads.value += 1


def test_reader_never_sees_an_error_or_a_part_while_a_file_is_replaced(tmp_path):
    context = multiprocessing.get_context("spawn")
    stop, faults, reads = context.Event(), context.Queue(), context.Value("i", 0)
    store, rows = Store(tmp_path), trajectories_table(members("demo", 0, "train"))
    reader = context.Process(target=watch, args=(tmp_path, stop, faults, reads))
    reader.start()
    deadline, version = time.monotonic() + 60, 0
    while (version < 100 or reads.value < 100) and reader.is_alive() and time.monotonic() < deadline:
        # Each version says its number in every row, and has a size of its own.
        version += 1
        seconds = pa.array([float(version)] * rows.num_rows)
        table = rows.set_column(rows.schema.get_field_index("seconds"), "seconds", seconds)
        errors = pa.array(["x" * (version % 7) * 50] * rows.num_rows)
        table = table.set_column(rows.schema.get_field_index("error"), "error", errors)
        store.publish_table(TRAJECTORIES, table, **WHERE)
        text = str(version) * (1 + version % 7) * 50
        store.write_run("demo", {"run": "demo", "code_version": text, "mlflow_run_id": text})
    stop.set()
    reader.join(30)
    assert faults.empty(), faults.get()
    assert version >= 100
    assert reads.value >= 100


def test_replaced_file_is_kept_and_no_view_shows_it(tmp_path):
    store, rows = Store(tmp_path), trajectories_table(members("demo", 0, "train"))
    store.publish_table(TRAJECTORIES, rows, **WHERE)
    store.publish_table(TRAJECTORIES, rows.slice(0, 4), **WHERE)
    (kept,) = (tmp_path / "_replaced").rglob("data.parquet")
    assert kept.relative_to(tmp_path).as_posix().endswith(data_file(TRAJECTORIES, **WHERE))
    with connect(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM trajectories").fetchone() == (4,)


def test_rows_with_the_same_key_are_not_published(tmp_path):
    store, rows = Store(tmp_path), trajectories_table(members("demo", 0, "train"))
    with pytest.raises(StoreError, match="same key"):
        store.publish_table(TRAJECTORIES, pa.concat_tables([rows, rows.slice(0, 1)]), **WHERE)
    assert not store.has(TRAJECTORIES, **WHERE)


def test_broken_file_is_named(tmp_path):
    store = Store(tmp_path)
    path = store.files.path(data_file(TRAJECTORIES, **WHERE))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StoreError, match="cannot be read"):
        store.read(TRAJECTORIES, **WHERE)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_would_be_more_than_a_folder_is_refused(name, tmp_path):
    with pytest.raises(StoreError, match="name"):
        check_name("run", name)
    with pytest.raises(StoreError):
        partition_folder(SCENARIOS, run=name, split="train")
    with pytest.raises(StoreError):
        Store(tmp_path).write_run(name, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [-1, 1.0, "1", None])
def test_step_that_is_no_step_is_refused(step):
    with pytest.raises(StoreError, match="step"):
        data_file(TRAJECTORIES, run="demo", step=step, split="train")


def test_split_that_is_none_is_refused():
    with pytest.raises(StoreError, match="split"):
        data_file(SCENARIOS, run="demo", split="test")


def test_second_writer_is_refused_with_the_name_of_the_first(tmp_path):
    store = Store(tmp_path)
    with (
        store.writer("demo"),
        pytest.raises(StoreError, match=f"process {os.getpid()}"),
        store.writer("demo"),
    ):
        pass
    with store.writer("demo"):
        pass


def test_writers_of_two_runs_do_not_wait_for_each_other(tmp_path):
    store = Store(tmp_path)
    with store.writer("one"), store.writer("two"):
        pass


def test_lease_ends_with_its_holder_even_when_it_is_killed(tmp_path):
    code = (
        "import sys, time; from storage.store import Store\n"
        "with Store(sys.argv[1]).writer('demo'): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"process {holder.pid}"), Store(tmp_path).writer("demo"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with Store(tmp_path).writer("demo"):
        pass
