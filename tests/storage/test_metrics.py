"""Every metric of the view, computed again in Python from the rows, with its numerator and denominator."""

import math
import statistics

import pyarrow as pa
import pytest

from storage.catalog import connect
from storage.layout import data_file
from storage.records import StopReason
from storage.schemas import SCORES
from tests.storage.builder import SCORER, members


@pytest.fixture
def metrics(store):
    def of(step, split="train", run="demo"):
        with connect(store.root) as connection:
            rows = connection.execute(
                "SELECT name, value, numerator, denominator FROM metrics "
                "WHERE run = $run AND step = $step AND split = $split",
                {"run": run, "step": step, "split": split},
            ).fetchall()
        assert len({row[0] for row in rows}) == len(rows), "a name is given twice"
        return {name: (value, numerator, denominator) for name, value, numerator, denominator in rows}

    return of


def test_metrics_of_a_step_follow_from_its_rows(metrics):
    rollouts = members("demo", 0, "train")
    groups = [[0.25, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0], [0.0] * 4]
    rewards = [reward for group in groups for reward in group]
    lengths = [sum(t.mask) for t in rollouts]
    differences = [0.03125 * (p % 2) for t in rollouts for p, sampled in enumerate(t.mask) if sampled]
    ratios = [math.exp(d) for d in differences]
    tokens = sum(lengths)
    expected = {
        "reward": (sum(rewards), 11),
        "reward_std": (sum(statistics.stdev(group) for group in groups), 3),
        "frac_reward_zero_std": (1, 3),
        "solved": (2, 3),
        "unscored": (1, 12),
        "completions/mean_length": (tokens, 12),
        "completions/min_length": (0, 1),
        "completions/max_length": (max(lengths), 1),
        "completions/clipped_ratio": (4, 12),
        "num_turns/mean": (sum(len(t.turns) for t in rollouts), 12),
        "rollout/seconds": (sum(t.seconds for t in rollouts), 12),
        "rollout/tokens": (tokens, 1),
        "env/guesses": (sum(t.metrics.get("guesses", 0.0) for t in rollouts), 12),
        "sampling/importance_sampling_ratio/mean": (sum(ratios), tokens),
        "sampling/importance_sampling_ratio/min": (1.0, 1),
        "sampling/importance_sampling_ratio/max": (max(ratios), 1),
        "sampling/sampling_logp_difference/mean": (sum(differences), tokens),
        "sampling/sampling_logp_difference/max": (0.03125, 1),
        "entropy": (0.5 * tokens, tokens),
        "loss": (0.75, 2),
        "grad_norm": (4.0, 2),
        "learning_rate": (1e-5, 1),
        "update/skipped": (0, 2),
        "update/tokens": (3 * tokens, 1),
        "update/forward_tokens": (4 * tokens, 1),
        "clip_ratio/low_mean": (0.1 * tokens + 0.2 * 2 * tokens, 3 * tokens),
        "clip_ratio/high_max": (0.5, 1),
        **{f"stop/{reason}": (sum(t.stop_reason == reason for t in rollouts), 12) for reason in StopReason},
    }
    found = metrics(0)
    timed = {name for name in found if name.startswith("time/")} | {"rollout/tokens_per_second"}
    assert set(found) - timed == set(expected)
    for name, (numerator, denominator) in expected.items():
        assert found[name][1:] == pytest.approx((numerator, denominator), rel=1e-6), name
        assert found[name][0] == pytest.approx(numerator / denominator, rel=1e-6), name


def test_stage_seconds_are_those_of_the_records(metrics, store):
    found = metrics(0)
    with connect(store.root) as connection:
        stages = connection.execute(
            "SELECT 'time/' || stage, seconds FROM stages "
            "WHERE step = 0 AND coalesce(split, 'train') = 'train' AND coalesce(scorer, $scorer) = $scorer",
            {"scorer": SCORER},
        ).fetchall()
    assert len(stages) == 4
    assert {name: found[name][0] for name, _ in stages} == dict(stages)
    seconds = dict(stages)["time/collect_rollouts"]
    assert found["rollout/tokens_per_second"][0] == pytest.approx(found["rollout/tokens"][0] / seconds)


def test_metrics_of_validation_have_a_prefix_of_their_own(metrics):
    found = metrics(0, "validation")
    assert found["val/reward"][1:] == pytest.approx((8.25, 11))
    assert all(name.startswith("val/") for name in found)


def test_reward_is_that_of_the_runs_own_scorer(metrics):
    # A judge gave 0.5 to everything of step 0: it is in the view rewards, and not in the metric.
    assert metrics(0)["reward"][0] == pytest.approx(0.75)


def test_step_where_nothing_was_scored_has_a_rate_and_no_reward(metrics, store):
    path = data_file(SCORES, run="demo", step=0, split="train", scorer=SCORER)
    table = store.read(SCORES, run="demo", step=0, split="train", scorer=SCORER)
    nulls = pa.nulls(table.num_rows, pa.float64())
    table = table.set_column(table.schema.get_field_index("reward"), SCORES.columns.field("reward"), nulls)
    store.publish_table(SCORES, table, run="demo", step=0, split="train", scorer=SCORER)
    assert store.files.exists(path)
    found = metrics(0)
    assert found["reward"][0] is None
    assert found["unscored"] == (1.0, 12.0, 12.0)
