"""The commands that ask a store, in one process: they start no flow."""

import csv
import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.output import visible
from storage.errors import StoreError
from storage.layout import data_file
from storage.schemas import TRAJECTORIES
from tests.storage.builder import make_store, members


@pytest.fixture
def cli(tmp_path):
    """Run a command on a small store; returns what it printed, or raises what it raised."""
    store = make_store(tmp_path / "store")

    def run(*arguments, code=0):
        result = CliRunner().invoke(
            app, [str(a) for a in arguments], env={"ROLLMILL_STORE": str(store.root), "COLUMNS": "200"}
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    run.store = store
    return run


def test_sql_answers_in_every_format(cli, tmp_path):
    query = "SELECT scenario_id, count(*) AS n FROM trajectories GROUP BY 1 ORDER BY 1"
    expected = [{"scenario_id": s, "n": 16} for s in ("easy", "it's hard", 'tricky "100%"')]
    assert json.loads(cli("sql", query, "--format", "json")) == expected
    rows = list(csv.DictReader(cli("sql", query, "--format", "csv").splitlines()))
    assert [{**row, "n": int(row["n"])} for row in rows] == expected
    cli("sql", query, "--format", "parquet", "--out", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == expected
    table = cli("sql", query)
    assert all(row["scenario_id"] in table for row in expected)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_csv_holds_no_formula(text, cli):
    said = cli("sql", f"SELECT '{text}' AS a, -1 AS number", "--format", "csv")
    assert list(csv.reader(said.splitlines(keepends=True), strict=False))[1][0].startswith("'")
    assert said.rstrip().endswith("-1")


def test_json_has_null_for_what_it_cannot_say(cli):
    said = json.loads(cli("sql", "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE] AS b, NULL AS c", "-f", "json"))
    assert said == [{"a": None, "b": [None], "c": None}]


def test_wrong_query_is_answered_in_duckdbs_words(cli):
    with pytest.raises(StoreError, match="syntax error"):
        cli("sql", "SELEC 1")


def test_query_cannot_write(cli, tmp_path):
    with pytest.raises(StoreError):
        cli("sql", f"COPY (SELECT 1) TO '{tmp_path}/x.csv'")
    assert not (tmp_path / "x.csv").exists()


def test_shell_reads_statements_over_lines_and_survives_mistakes(cli):
    result = CliRunner().invoke(
        app,
        ["sql", "shell", "--store", str(cli.store.root)],
        input="SELEC;\n.views\nSELECT\n  41 + 1 AS answer;\n.quit\nSELECT 'never';\n",
        env={"HOME": str(cli.store.root.parent)},
    )
    assert result.exit_code == 0
    assert "42" in result.stdout
    assert "trajectories" in result.stdout
    assert "never" not in result.stdout


def test_ask_lists_and_answers(cli):
    assert "reward_by_step" in cli("ask")
    rows = json.loads(cli("ask", "reward_by_step", "--run", "demo", "--format", "json"))
    assert {row["step"] for row in rows} == {0, 1}
    assert "FROM groups" in cli("ask", "reward_by_step", "--sql")
    assert json.loads(
        cli("ask", "changes_between_steps", "--set", "before=0", "--set", "after=1", "-f", "json")
    )


def test_runs_and_status(cli):
    (run,) = json.loads(cli("runs", "--format", "json"))
    assert (run["run"], run["last_adapter"]) == ("demo", 2)
    assert "current" in cli("status", "demo")
    table = cli.store.read(TRAJECTORIES, run="demo", step=0, split="train")
    cli.store.publish_table(TRAJECTORIES, table.slice(0, 8), run="demo", step=0, split="train")
    assert "is not what it was made from" in cli("status", "demo")


def test_show_tells_an_episode(cli):
    trajectory = members("demo", 0, "train")[5]
    said = cli("show", trajectory.trajectory_id[:10], "--tokens")
    assert "guess 0 of 1" in said
    assert "ended: completed" in said
    assert "environment: 1 (group mean 1.5, advantage -0.387" in said
    assert str(trajectory.token_ids[3]) in said


def test_what_a_tool_wrote_does_not_reach_the_terminal_as_a_command(cli):
    path = cli.store.files.path(data_file(TRAJECTORIES, run="demo", step=0, split="train"))
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    for row in rows:
        row["messages"][0]["content"] = "\x1b]0;owned\x07 \u202eright to left \x9b31m [bold]tag[/bold]"
    pq.write_table(table.from_pylist(rows, schema=table.schema), path)
    shown = cli("show", rows[0]["trajectory_id"])
    queried = cli("sql", "SELECT content FROM messages WHERE step = 0 AND split = 'train' AND position = 0")
    for said in (shown, queried):
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(said)
        assert "[bold]tag[/bold]" in said


def test_visible_keeps_lines_and_letters():
    assert visible("é🎲\n\t漢") == "é🎲\n\t漢"
    assert visible("\x1b[2J\x00\u200b") == "\\x1b[2J\\x00\\u200b"


def test_explain_fails_when_a_file_was_changed(cli):
    assert "as recorded" in cli("explain", "demo")
    with (cli.store.adapter("demo", 2) / "adapter_model.safetensors").open("a") as file:
        file.write("!")
    with pytest.raises(StoreError, match="not as they were recorded"):
        cli("explain", "demo", "--step", 2)


def test_export_and_import(cli, tmp_path):
    assert "24 rows" in cli("export", "demo", tmp_path / "x.jsonl")
    assert "24 chats" in cli("import", tmp_path / "x.jsonl", "--run", "back")
    with pytest.raises(StoreError, match=r"must end with \.jsonl or \.parquet"):
        cli("export", "demo", tmp_path / "x.txt")


def test_gc_removes_nothing_unless_told_to(cli):
    built = cli.store.files.scratch("tables")
    built.write_text("half")
    assert "nothing was" in cli("gc", "--replaced-days", 0)
    assert built.exists()
    assert "Removed 1 things" in cli("gc", "--replaced-days", 0, "--delete")
    assert not built.exists()
