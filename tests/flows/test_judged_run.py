"""A run that a judge rewards, from config to adapter, and rollouts that a judge scores afterwards."""

from __future__ import annotations

import asyncio
import re

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from flows.config import parse_config
from storage.catalog import connect
from storage.errors import ConfigError
from storage.store import Store
from tasks.settings import RunConfig
from tests.flows.conftest import tiny_document
from tests.rewards.judges import Answer, judge_server, verdicts

NOBODY = "http://127.0.0.1:9/v1"
WORLD = {"name": "tests.flows.worlds:LengthGuess", "args": {"high": 16, "guesses": 2}}


def by_label(number: int, request: dict) -> Answer:
    labels = re.findall(r'<trajectory id="(\d+)">', request["messages"][1]["content"])
    return Answer(verdicts({label: int(label) / 10 for label in labels}))


def test_judge_rewards_a_run_and_is_asked_nothing_twice(tiny_model, prefect_server, tmp_path):
    from flows.train import train

    store = Store(tmp_path / "store")
    with judge_server(by_label) as server:
        reward = {"scorer": "ruler", "judge": {"model": "j", "base_url": server.url, "api_key_env": None}}
        document = tiny_document(
            tiny_model,
            store.root,
            environment=WORLD,
            steps=1,
            reward=reward,
            validation={"at_start": False, "every": None},
        )
        asyncio.run(train(RunConfig.model_validate(document)))
        asked = len(server.requests)
        assert asked == 4 + 4  # groups of the step, and held-out scenarios

        # The same questions again, as another scorer of the same rollouts.
        path = tmp_path / "reward.yaml"
        path.write_text(yaml.safe_dump({**reward, "name": "again"}))
        arguments = ["stage", "score_rollouts", "r", "--step", "0", "--reward", str(path)]
        result = CliRunner().invoke(app, [*arguments, "--store", str(store.root)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert len(server.requests) == asked

    with connect(store.root) as connection:
        assert connection.sql(
            "SELECT scorer, split, count(*), count(*) FILTER (cached), count(error) FROM judge_calls "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall() == [
            ("again", "train", 4, 4, 0),
            ("ruler", "train", 4, 0, 0),
            ("ruler", "validation", 4, 0, 0),
        ]
        [(pairs, equal)] = connection.sql(
            "SELECT count(*), count(*) FILTER (a.reward = b.reward) FROM rewards a JOIN rewards b "
            "USING (trajectory_id) WHERE a.scorer = 'ruler' AND b.scorer = 'again'"
        ).fetchall()
        assert (pairs, equal) == (8, 8)
        [(trained,)] = connection.sql("SELECT count(*) FROM tokens WHERE advantage <> 0").fetchall()
        assert trained > 0
    assert store.adapter_steps("r") == [0, 1]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ({"scorer": "ruler"}, "reward: scorer ruler needs a judge"),
        ({"rubric": "be kind"}, "reward: judge and rubric do nothing without scorer ruler"),
        ({"args": {"x": 1}}, "reward: args do nothing with scorer environment"),
        ({"scorer": "ruler", "judge": {"model": "j", "max_cost": 1}}, "max_cost does nothing without prices"),
        (
            {
                "scorer": "ruler",
                "judge": {"model": "j", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None},
            },
            "reward.judge: http://127.0.0.1:9/v1 does not answer",
        ),
    ],
)
def test_judges_that_cannot_judge_are_refused_before_anything_starts(reward, words, tiny_model, tmp_path):
    with pytest.raises(ConfigError) as refused:
        parse_config(tiny_document(tiny_model, tmp_path / "store", environment=WORLD, reward=reward))
    assert words in str(refused.value)
