"""Where scenarios come from, and which of them a step plays."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from storage.codec import to_json
from storage.errors import ScenarioError
from storage.layout import SPLITS
from storage.records import Scenario
from tasks.loading import load_object, make_environment
from tasks.scenario_tables import load_table_scenarios
from tasks.settings import RunConfig


def make_scenarios(config: RunConfig) -> dict[str, list[Scenario]]:
    """The scenarios of both splits, as the config says where they come from.

    Raises:
        ScenarioError: a file is wrong, the environment cannot make as many, or two scenarios share an id.
        ConfigError: the environment cannot be made.
    """
    placed: dict[str, dict[str, Scenario]] = {}
    for split in SPLITS:
        wanted = getattr(config.scenarios, split)
        if isinstance(wanted, str) and config.scenarios.source == "function":
            placed[split] = call_for_scenarios(wanted, split, config.seed)
        elif isinstance(wanted, str):
            placed[split] = load_scenarios(Path(wanted))
        else:
            seed = config.seed
            if split == "validation" and config.scenarios.validation_seed is not None:
                seed = config.scenarios.validation_seed
            made = make_environment(config.environment).scenarios(split, wanted, seed)
            placed[split] = {f"{split} scenario {n}": scenario for n, scenario in enumerate(made, start=1)}
    if config.scenarios.validation_seed is not None:
        held_out = {to_json(scenario.payload) for scenario in placed["validation"].values()}
        placed["train"] = {
            place: scenario
            for place, scenario in placed["train"].items()
            if to_json(scenario.payload) not in held_out
        }
    for split, scenarios in placed.items():
        if not scenarios:
            raise ScenarioError(f"The {split} split has no scenarios.")
    refuse_double_ids(item for scenarios in placed.values() for item in scenarios.items())
    return {split: list(scenarios.values()) for split, scenarios in placed.items()}


def load_scenarios(path: Path) -> dict[str, Scenario]:
    """Scenarios of a JSONL file by their places in it (`file:line`); tables are load_table_scenarios'.

    Each line is an object with `scenario_id`, `payload` and perhaps `metadata`.

    Raises:
        ScenarioError: the file is missing or empty, or a line is not of that form; the line is named.
    """
    if path.suffix == ".parquet" or path.is_dir():
        return load_table_scenarios(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"Scenario file {path} cannot be read: {error}.") from error
    places = {f"{path}:{number}": line for number, line in enumerate(lines, start=1) if line.strip()}
    return {place: _parse(line, place) for place, line in places.items()}


def call_for_scenarios(name: str, split: str, seed: int) -> dict[str, Scenario]:
    """Scenarios of `package.module:function`, called with the split and the seed, by their places.

    It yields Scenarios, or dicts of their fields. What it raises itself goes through.

    Raises:
        ScenarioError: it yields something else; which one is said.
        ConfigError: it cannot be imported.
    """
    placed = {}
    for number, made in enumerate(load_object(name)(split, seed)):
        place = f"{name}, {split} scenario {number}"
        placed[place] = made if isinstance(made, Scenario) else _scenario(made, place)
    return placed


def refuse_double_ids(scenarios: Iterable[tuple[str, Scenario]]) -> None:
    """Raise ScenarioError when two scenarios share an id; each comes with the place it is from."""
    places: dict[str, str] = {}
    for place, scenario in scenarios:
        if scenario.scenario_id in places:
            raise ScenarioError(
                f"Scenario id {scenario.scenario_id!r} stands at {places[scenario.scenario_id]} and at "
                f"{place}. Ids identify rollouts: give each scenario its own, and no scenario to two splits."
            )
        places[scenario.scenario_id] = place


def draw_scenarios(
    scenarios: Sequence[Scenario], *, step: int, count: int, seed: int
) -> list[tuple[Scenario, int]]:
    """The `count` scenarios that training step `step` plays, each with its group_no.

    Goes through all scenarios in a shuffled order, then through them in another one, and so on; a function of
    its arguments alone, so that a resumed run draws what an uninterrupted one would have drawn.
    """
    drawn, seen = [], Counter[str]()
    for index in range(step * count, (step + 1) * count):
        epoch, place = divmod(index, len(scenarios))
        order = list(range(len(scenarios)))
        random.Random(f"scenario order/{seed}/{epoch}").shuffle(order)
        scenario = scenarios[order[place]]
        drawn.append((scenario, seen[scenario.scenario_id]))
        seen[scenario.scenario_id] += 1
    return drawn


def _parse(line: str, place: str) -> Scenario:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ScenarioError(f"{place} is not JSON: {error}.") from error
    return _scenario(row, place)


def _scenario(row: Any, place: str) -> Scenario:
    wrong = _what_is_wrong(row)
    if wrong:
        raise ScenarioError(f"{place}: {wrong}. A line looks like " + '{"scenario_id": "a", "payload": {}}.')
    return Scenario(row["scenario_id"], row["payload"], row.get("metadata", {}))


def _what_is_wrong(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "it is not an object"
    if unknown := set(row) - {"scenario_id", "payload", "metadata"}:
        return f"it has unknown fields: {', '.join(sorted(unknown))}"
    if not isinstance(row.get("scenario_id"), str) or not row["scenario_id"]:
        return "scenario_id is not a text of one character or more"
    if not isinstance(row.get("payload"), dict) or not isinstance(row.get("metadata", {}), dict):
        return "payload and metadata are not both objects"
    return None
