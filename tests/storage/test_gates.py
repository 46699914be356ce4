import math

import pyarrow as pa
import pytest

from storage.errors import StoreError
from storage.gates import check_gates, gate_names
from storage.layout import data_file
from storage.schemas import SCORES, TRAJECTORIES
from storage.store import write_parquet
from tests.storage.builder import SCORER

WHERE = {"run": "demo", "step": 1, "split": "train"}


def corrupt(store, dataset, change, **partitions):
    """Rewrite a published file behind the store's back, with its rows as `change` leaves them."""
    rows = store.read(dataset, **WHERE, **partitions).to_pylist(maps_as_pydicts="strict")
    rows = change(rows) or rows
    # No null is refused on this way, unlike in publishing: gates look at what other writers left, too.
    schema = pa.schema([field.with_nullable(True) for field in dataset.columns])
    path = store.files.path(data_file(dataset, **WHERE, **partitions))
    write_parquet(pa.Table.from_pylist(rows, schema=schema), path)


def in_trajectory(**values):
    """A change of the first trajectory that sampled something."""

    def change(rows):
        rows[0].update({name: value(rows[0]) if callable(value) else value for name, value in values.items()})

    return change


def in_turn(**values):
    def change(rows):
        rows[0]["turns"][0].update(values)

    return change


def replaced(name, index, value):
    return in_trajectory(**{name: lambda row: [*row[name][:index], value, *row[name][index + 1 :]]})


def in_score(**values):
    return lambda rows: rows[0].update(values)


VIOLATIONS = {
    "token_lists": [(TRAJECTORIES, in_trajectory(mask=lambda row: row["mask"][:-1]))],
    "logprob_places": [(TRAJECTORIES, replaced("logprobs", 0, -1.0))],
    "logprob_range": [
        (TRAJECTORIES, replaced("logprobs", 2, x)) for x in (math.nan, math.inf, -math.inf, 0.5)
    ],
    "turn_tiling": [
        (TRAJECTORIES, in_turn(end=4)),
        (TRAJECTORIES, in_turn(start=1)),
        (TRAJECTORIES, in_trajectory(turns=lambda row: row["turns"][::-1])),
        (TRAJECTORIES, in_trajectory(turns=[])),
    ],
    "turn_segments": [
        (
            TRAJECTORIES,
            in_trajectory(segment_starts=[0, 6], turns=lambda row: [dict(t) for t in row["turns"]]),
        ),
        (TRAJECTORIES, in_trajectory(segment_starts=[1])),
        (TRAJECTORIES, in_trajectory(segment_starts=[0, 99])),
    ],
    "group_sizes": [(TRAJECTORIES, lambda rows: rows[1:])],
    "unique_keys": [
        (TRAJECTORIES, lambda rows: [*rows, rows[0]]),
        (TRAJECTORIES, lambda rows: [*rows, {**rows[0], "trajectory_id": "other"}]),
    ],
    "stop_reasons": [(TRAJECTORIES, in_trajectory(stop_reason=r)) for r in (None, "", "bored")],
    "one_prompt_a_group": [(TRAJECTORIES, in_trajectory(prompt_digest="another"))],
    "policy_versions": [(TRAJECTORIES, in_turn(policy_version=0))],
    "scores_cover_trajectories": [
        (SCORES, lambda rows: rows[1:]),
        (SCORES, lambda rows: [*rows, rows[0]]),
        (SCORES, lambda rows: [*rows, {**rows[0], "trajectory_id": "stray"}]),
    ],
    "rewards_finite": [(SCORES, in_score(reward=x)) for x in (math.nan, math.inf)],
    "failures_unscored": [
        (SCORES, lambda rows: [row.update(reward=0.0) for row in rows if row["reward"] is None] and None)
    ],
}
CASES = [(gate, *violation) for gate, violations in VIOLATIONS.items() for violation in violations]


@pytest.fixture
def gated(store):
    """The store with a configured group size; all its gates hold."""
    description = store.read_run("demo")
    description["config"]["rollouts"] = {"rollouts_per_group": 4}
    store.write_run("demo", description)
    return store


def test_good_rows_pass(gated):
    check_gates(gated, "demo", 0, SCORER, scored_by="demo")
    check_gates(gated, "demo", 1, SCORER, scored_by="demo")


def test_every_gate_is_violated_below():
    assert set(VIOLATIONS) == set(gate_names())


@pytest.mark.parametrize(("gate", "dataset", "change"), CASES)
def test_gate_names_the_rows_that_violate_it(gate, dataset, change, gated, monkeypatch):
    partitions = {"scorer": SCORER} if dataset is SCORES else {}
    corrupt(gated, dataset, change, **partitions)
    # One violation may offend several gates; here each answers for itself.
    monkeypatch.setattr("storage.gates.gate_names", lambda: [gate])
    with pytest.raises(StoreError, match=f"gate `{gate}`") as caught:
        check_gates(gated, "demo", 1, SCORER, scored_by="demo")
    assert "_id'" in str(caught.value)
    check_gates(gated, "demo", 0, SCORER, scored_by="demo")


def test_every_reason_to_fail_is_seen_without_choosing_the_gate(gated):
    corrupt(gated, TRAJECTORIES, replaced("logprobs", 2, math.nan))
    with pytest.raises(StoreError, match="logprob_range"):
        check_gates(gated, "demo", 1, SCORER, scored_by="demo")


def test_missing_logprob_of_a_sampled_token_stops_nothing(gated):
    """L6: its trajectory leaves the loss, which the trainer counts."""
    corrupt(gated, TRAJECTORIES, replaced("logprobs", 2, None))
    check_gates(gated, "demo", 1, SCORER, scored_by="demo")
