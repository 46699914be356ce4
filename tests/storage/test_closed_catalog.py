"""SQL reads the stores of its connection, and can do nothing else."""

import duckdb
import pytest

from storage.catalog import connect
from tests.storage.builder import make_store

ATTACKS = [
    "COPY (SELECT 1) TO 'store://0/x.parquet'",
    "COPY (SELECT 1 AS a, 2 AS b) TO 'store://0/x' (FORMAT parquet, PARTITION_BY (a))",
    "WITH hidden AS (COPY (SELECT 1) TO 'store://0/x.csv') FROM hidden",
    "FROM query('WITH hidden AS (COPY (SELECT 1) TO ''store://0/x.csv'') FROM hidden')",
    "COPY (SELECT 1) TO '{outside}/x.csv'",
    "COPY (SELECT 1) TO '{root}/x.csv'",
    "EXPORT DATABASE 'store://0/x'",
    "EXPORT DATABASE '{outside}/x'",
    "ATTACH 'store://0/x.db'",
    "ATTACH '{outside}/x.db'",
    "ATTACH '{outside}/secret.db' (READ_ONLY)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET allowed_directories = ['/']",
    "SET temp_directory = '{outside}'",
    "RESET lock_configuration",
    "CALL enable_logging(storage = 'file', storage_path = '{outside}/logs')",
    "PRAGMA enable_profiling = 'json'",
    "FROM read_text('{outside}/secret.txt')",
    "FROM read_csv('{outside}/secret.txt')",
    "FROM read_blob('file://{outside}/secret.txt')",
    "FROM sniff_csv('{outside}/secret.txt')",
    "FROM glob('{outside}/*')",
    "FROM '{outside}/secret.parquet'",
    "FROM parquet_metadata('{outside}/secret.parquet')",
    "FROM read_text('{root}/runs/run=demo/run.json')",
    "FROM read_text('store://0/../secret.txt')",
    "FROM read_text('store://0/{outside}/secret.txt')",
    "FROM read_text('store://1/secret.txt')",
    "FROM read_text('store://00/secret.txt')",
    "FROM 'http://localhost:9/x.parquet'",
    "FROM python_variable",
    "SELECT getenv('HOME')",
]


@pytest.fixture
def world(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    duckdb.sql("SELECT 1 AS secret").write_parquet(str(outside / "secret.parquet"))
    duckdb.connect(str(outside / "secret.db")).close()
    return make_store(tmp_path / "store", steps=1), outside


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_refused(attack, world):
    store, outside = world
    python_variable = duckdb.sql("SELECT 1").to_arrow_table()
    assert python_variable.num_rows == 1
    before = sorted(path for path in outside.parent.rglob("*") if path.is_file())
    with connect(store.root) as connection, pytest.raises(duckdb.Error):
        connection.execute(attack.format(outside=outside, root=store.root)).fetchall()
    assert sorted(path for path in outside.parent.rglob("*") if path.is_file()) == before


def test_tables_in_memory_are_allowed_and_touch_no_file(world):
    store, _ = world
    with connect(store.root) as connection:
        connection.execute("CREATE TABLE mine AS SELECT run FROM runs")
        assert connection.sql("FROM mine").fetchall() == [("demo",)]


def test_files_of_the_store_that_no_view_shows_can_be_read(world):
    store, _ = world
    with connect(store.root) as connection:
        [(text,)] = connection.sql(
            "SELECT content FROM read_text('store://0/runs/run=demo/run.json')"
        ).fetchall()
    assert '"scorer": "environment"' in text


@pytest.mark.parametrize(
    "name",
    [
        "it's",
        'quote"d',
        "run=other",
        "step=x",
        "[a]*?",
        "per%20cent%",
        "back\\slash",
        "new\nline",
        "sp ace",
        "--;",
        "é🎲",
    ],
)
def test_path_of_a_store_means_nothing_in_sql(name, tmp_path):
    make_store(tmp_path / "decoy")
    store = make_store(tmp_path / name / "store", steps=1)
    with connect(store.root) as connection:
        assert connection.sql("SELECT DISTINCT store, run, step FROM trajectories").fetchall() == [
            (str(store.root), "demo", 0)
        ]
        assert connection.sql("SELECT count(*) FROM metrics").fetchall() > [(0,)]
