"""G7 (rLLM, prime-rl): two scenarios with the same id silently shared a group."""

import pytest

from storage.errors import ScenarioError
from storage.records import Scenario
from tasks.scenarios import refuse_double_ids


def test_a_double_id_is_refused_with_both_places():
    with pytest.raises(ScenarioError, match="'a' stands at x.jsonl:1 and at y.jsonl:7"):
        refuse_double_ids([("x.jsonl:1", Scenario("a", {})), ("y.jsonl:7", Scenario("a", {"other": 1}))])


def test_a_scenario_in_both_splits_is_refused():
    with pytest.raises(ScenarioError, match="train, number 1 and at validation, number 1"):
        refuse_double_ids(
            [("train, number 1", Scenario("a", {})), ("validation, number 1", Scenario("a", {}))]
        )
