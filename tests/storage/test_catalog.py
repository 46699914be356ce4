import math
import statistics

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.catalog import VIEWS, connect, view_comment
from storage.errors import StoreError
from storage.layout import data_file
from storage.records import FAILURES, StopReason
from storage.schemas import DATASETS, SCORES, TRAJECTORIES
from storage.store import Store
from tasks.grpo.advantages import group_advantages
from tests.storage.builder import SCORER, build_run, make_store, members, scores_of


@pytest.mark.parametrize("view", VIEWS)
def test_view_of_an_empty_store_is_empty_and_has_the_columns_of_a_full_one(view, tmp_path):
    full = make_store(tmp_path / "full")
    with connect(tmp_path / "nothing") as empty, connect(full.root) as filled:
        nothing, something = (c.sql(f"SELECT * FROM {view}") for c in (empty, filled))
        assert nothing.fetchall() == []
        assert something.fetchall() != []
        assert nothing.columns == something.columns
        assert nothing.types == something.types


@pytest.mark.parametrize("view", VIEWS)
def test_view_says_what_a_row_is(view):
    assert view_comment(view).startswith("A row is ")


def test_datasets_all_have_a_view():
    assert set(DATASETS) <= set(VIEWS)


def test_connection_sees_what_is_published_after_it_was_made(tmp_path):
    with connect(tmp_path / "store") as connection:
        assert connection.sql("SELECT count(*) FROM turns").fetchall() == [(0,)]
        make_store(tmp_path / "store")
        assert connection.sql("SELECT count(*) FROM turns").fetchall() == [(108,)]


def test_file_of_an_older_schema_gives_null_for_what_it_lacks(store, sql):
    path = store.files.path(data_file(TRAJECTORIES, run="demo", step=0, split="train"))
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["seat", "messages"]), path)
    rows = sql("SELECT messages, stop_reason FROM trajectories WHERE step = 0 AND split = 'train'")
    assert len(rows) == 12
    assert all(row["messages"] is None and row["stop_reason"] for row in rows)


def test_file_of_a_newer_schema_can_be_read(store, sql):
    path = store.files.path(data_file(TRAJECTORIES, run="demo", step=0, split="train"))
    table = pq.ParquetFile(path).read()
    pq.write_table(table.append_column("invented", pa.array(range(table.num_rows))), path)
    assert sql("SELECT count(*) AS n FROM trajectories") == [{"n": 48}]


def test_several_stores_are_told_apart(tmp_path):
    one, two = make_store(tmp_path / "one"), make_store(tmp_path / "two", steps=1)
    with connect(one.root, two.root) as connection:
        rows = connection.sql("SELECT store, count(*) FROM trajectories GROUP BY store ORDER BY 2").fetchall()
        assert rows == [(str(two.root), 24), (str(one.root), 48)]
        # Each trajectory meets its own store's scores, though the ids are the same in both.
        assert connection.sql("SELECT count(*) FROM rewards").fetchall() == [(60 + 36,)]


def test_connecting_to_no_store_is_refused():
    with pytest.raises(StoreError, match="No store"):
        connect()


@pytest.mark.parametrize("view", ["trajectories", "turns", "tokens", "rewards", "groups", "metrics"])
def test_question_about_one_step_reads_that_steps_files_alone(view, store):
    with connect(store.root) as connection:
        plan = connection.execute(f"EXPLAIN ANALYZE SELECT count(*) FROM {view} WHERE step = 1").fetchall()[
            0
        ][1]
    assert "step=000001" in plan.replace("\n", "")
    assert "step=000000" not in plan


def test_parameter_prunes_like_a_constant(store):
    with connect(store.root) as connection:
        plan = connection.execute(
            "EXPLAIN ANALYZE SELECT count(*) FROM turns WHERE ($step IS NULL OR step = $step)", {"step": 1}
        ).fetchall()[0][1]
    assert "step=000000" not in plan


def test_sql_takes_its_enums_from_the_records(sql):
    (row,) = sql("SELECT stop_reason_names() AS names")
    assert row["names"] == [str(reason) for reason in StopReason]
    failed = sql("SELECT name FROM (SELECT unnest(stop_reason_names()) AS name) WHERE is_failure(name)")
    assert {row["name"] for row in failed} == set(FAILURES)


def test_turn_has_the_text_of_its_reply_even_behind_an_assistant_message_of_the_prompt(tmp_path):
    store = make_store(tmp_path / "store")
    path = store.files.path(data_file(TRAJECTORIES, run="demo", step=0, split="train"))
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    for row in rows:
        row["messages"].insert(0, {**row["messages"][0], "role": "assistant", "content": "of the prompt"})
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    with connect(store.root) as connection:
        contents = connection.sql(
            "SELECT turn, content FROM turns WHERE step = 0 AND split = 'train'"
        ).fetchall()
    assert contents
    assert all(content.startswith(f"guess {turn} of") for turn, content in contents)


def test_tokens_carry_the_trainers_numbers_where_they_were_sampled_and_nowhere_else(sql):
    rows = sql("SELECT * FROM tokens WHERE step = 0 AND split = 'train' AND scenario_id = 'easy'")
    assert rows
    for row in rows:
        assert row["mask"] == (row["logprob"] is not None) == (row["turn"] is not None)
        assert row["mask"] == (row["trainer_logprob"] is not None) == (row["advantage"] is not None)
        if row["mask"]:
            assert row["ratio"] == pytest.approx(math.exp(row["trainer_logprob"] - row["logprob"]), rel=1e-6)


def test_rewards_have_the_advantages_that_train(sql):
    rollouts = members("demo", 0, "train")
    rewards = {score.trajectory_id: score.reward for score in scores_of(rollouts)}
    expected = group_advantages(
        [rewards[t.trajectory_id] for t in rollouts], [t.key.group_id for t in rollouts]
    )
    found = {
        row["trajectory_id"]: row["advantage"]
        for row in sql("SELECT * FROM rewards WHERE step = 0 AND split = 'train' AND scorer = 'environment'")
    }
    for trajectory, advantage in zip(rollouts, expected.values, strict=True):
        if rewards[trajectory.trajectory_id] is None:
            assert found[trajectory.trajectory_id] is None
        else:
            assert found[trajectory.trajectory_id] == pytest.approx(advantage, abs=1e-12)


@pytest.mark.parametrize(
    ("rewards", "advantages"),
    [
        ([0.35] * 7, [0.0] * 7),
        ([1.0, 1.0 + 1e-7], [0.0, 0.0]),
        ([0.7], [0.0]),
        ([1.0, None, 0.0], [math.sqrt(0.5), None, -math.sqrt(0.5)]),
    ],
)
def test_advantage_of_small_and_equal_groups(rewards, advantages, tmp_path):
    # Cases G1, G2 and G4 of the field's faults, in SQL as in the trainer.
    store = make_store(tmp_path / "store", steps=1)
    table = store.read(TRAJECTORIES, run="demo", step=0, split="train")
    mixed = [row for row in table.to_pylist() if row["scenario_id"] == "it's hard"]
    rows = [{**mixed[0], "sample_no": n, "trajectory_id": f"t{n}"} for n in range(len(rewards))]
    scores = [
        {
            "trajectory_id": f"t{n}",
            "scorer_digest": "d",
            "reward": reward,
            "components": {},
            "judge_call_ids": [],
        }
        for n, reward in enumerate(rewards)
    ]
    where = {"run": "demo", "step": 5, "split": "train"}
    store.publish_table(TRAJECTORIES, pa.Table.from_pylist(rows, schema=TRAJECTORIES.schema), **where)
    store.publish_table(SCORES, pa.Table.from_pylist(scores, schema=SCORES.schema), **where, scorer=SCORER)
    with connect(store.root) as connection:
        found = connection.sql("SELECT advantage FROM rewards WHERE step = 5 ORDER BY sample_no").fetchall()
        (group,) = connection.sql("SELECT usable, zero_variance FROM groups WHERE step = 5").fetchall()
    assert [advantage for (advantage,) in found] == pytest.approx(advantages)
    assert group == (sum(r is not None for r in rewards), all(not a for a in advantages))


def test_groups_count_failed_rollouts_and_leave_them_out_of_the_mean(sql):
    (group,) = sql(
        "SELECT * FROM groups WHERE step = 0 AND split = 'train' AND scenario_id = 'easy' "
        "AND scorer = 'environment'"
    )
    assert (group["rollouts"], group["failed"], group["usable"]) == (4, 1, 3)
    assert group["reward_mean"] == pytest.approx(0.75)
    assert group["reward_std"] == pytest.approx(statistics.stdev([0.25, 1.0, 1.0]))
    assert group["solved"] == "all"
    solved = {row["solved"] for row in sql("SELECT solved FROM groups WHERE scorer = 'environment'")}
    assert solved == {"all", "some", "none"}


def test_group_that_nobody_scored_has_no_scorer(tmp_path):
    store = make_store(tmp_path / "store", steps=1)
    store.files.remove("scores")
    with connect(store.root) as connection:
        rows = connection.sql("SELECT scorer, rollouts, usable, zero_variance FROM groups").fetchall()
    assert set(rows) == {(None, 4, 0, False)}


def test_runs_of_one_store_do_not_mix(tmp_path):
    store = build_run(Store(tmp_path / "store"), "alpha", steps=1)
    build_run(store, "beta", steps=1)
    with connect(store.root) as connection:
        assert connection.sql("SELECT DISTINCT run FROM rewards WHERE run = 'beta'").fetchall() == [("beta",)]
        counts = connection.sql("SELECT run, count(*) FROM trajectories GROUP BY run ORDER BY run").fetchall()
    assert counts == [("alpha", 24), ("beta", 24)]
