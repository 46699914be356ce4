"""A wrong config is refused before anything starts: all mistakes at once, each with its fix."""

import copy

import pytest
import yaml

from flows.config import load_config, parse_config
from storage.errors import ConfigError

SOUND = {
    "name": "r",
    "model": {"base": "smollm2-135m-instruct"},
    "environment": {"name": "tasks.environments.guess_number:GuessNumber"},
    "scenarios": {"train": 12, "validation": 4},
}


def mistakes(**changes) -> str:
    """What is said of the sound config with `changes`: dotted fields, with __ for the dot."""
    document = copy.deepcopy(SOUND)
    for field, value in changes.items():
        *parents, last = field.split("__")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    with pytest.raises(ConfigError) as refused:
        parse_config(document)
    return str(refused.value)


def test_the_defaults_are_the_starting_points_of_the_field():
    config = parse_config(SOUND)
    assert config.update.learning_rate == 1e-5
    assert (config.rollouts.groups_per_step, config.rollouts.rollouts_per_group) == (2, 4)
    assert (config.rollouts.temperature, config.update.clip_low, config.update.clip_high) == (1.0, 0.2, 0.28)
    assert (config.update.kl_coefficient, config.update.max_grad_norm) == (0.0, 1.0)
    assert (config.model.lora.rank, config.model.lora.alpha) == (16, 32)
    assert config.model.lora.target_modules == "all-linear"


def test_all_mistakes_are_listed_at_once():
    said = mistakes(
        update__learning_rat=1e-4,
        rollouts__temperature=-1,
        environment__name="nowhere.at_all:Game",
        model__base="no-such-folder/model",
        reward__scorer="json:no_such_function",
        name="../escape",
    )
    assert said.startswith("6 mistakes")
    for part in (
        "update.learning_rat: there is no such setting. Did you mean learning_rate?",
        "rollouts.temperature: Input should be greater than 0, got -1.",
        "environment: 'nowhere.at_all:Game' cannot be imported",
        "model.base: ",
        "reward.scorer: json has no 'no_such_function'",
        "name: run name '../escape' cannot be used",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment__args": {"hihg": 3}}, "refused environment.args {'hihg': 3}"),
        ({"scenarios__train": 13}, "has 12 train scenarios"),
        ({"scenarios__train": "a.jsonl"}, "'a.jsonl' is not a number"),
        ({"scenarios__source": "file"}, "12 is not the path of a file"),
        ({"model__chat_template": "none.jinja"}, "there is no file 'none.jinja'"),
        ({"environment": {}}, "environment.name: this setting has no default"),
        ({"update__clip_low": "much"}, "update.clip_low: Input should be a valid number"),
        ({"rollouts__top_p": 0.9}, "rollouts.top_p: there is no such setting"),
    ],
)
def test_each_mistake_is_named_with_its_fix(changes, said):
    assert said in mistakes(**changes)


def test_a_file_is_read_with_overrides(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(SOUND))
    assert load_config(path, {"update.learning_rate": 1e-3}).update.learning_rate == 1e-3


@pytest.mark.parametrize("text", ["a: [", "- 1", ""])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="run.yaml is not"):
        load_config(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_temperature_that_vllm_refuses_is_refused_first():
    said = mistakes(rollouts__temperature=2.5)
    assert "vLLM refuses temperatures above 2, and 2.5 is asked for" in said
    assert "got {" not in said
    sound = copy.deepcopy(SOUND)
    sound |= {"rollouts": {"temperature": 2.5}, "inference": {"engine": "transformers"}}
    assert parse_config(sound).rollouts.temperature == 2.5
