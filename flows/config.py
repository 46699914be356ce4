"""The run's configuration, refused before anything starts: every mistake at once, each with its fix."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from storage.errors import ConfigError, RollmillError
from storage.layout import check_name
from tasks.loading import make_environment
from tasks.rewards.scorers import check_scorer, scorer_name
from tasks.scenarios import make_scenarios
from tasks.settings import RunConfig


def load_config(path: Path, overrides: dict[str, Any] | None = None) -> RunConfig:
    """Read, validate and check a YAML config; `overrides` maps dotted fields to values.

    Raises:
        ConfigError: lists every mistake that was found.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Config {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"Config {path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"Config {path} is not a mapping of settings; see docs/config.md.")
    for field, value in (overrides or {}).items():
        _set(document, field, value)
    return parse_config(document, str(path))


def changed_config(config: RunConfig, overrides: dict[str, Any]) -> RunConfig:
    """`config` with dotted fields set anew, validated and checked. Raises ConfigError with every mistake."""
    document = config.model_dump(mode="json")
    for field, value in overrides.items():
        _set(document, field, value)
    return parse_config(document, "the changed configuration")


def parse_config(document: dict[str, Any], source: str = "the parameters") -> RunConfig:
    """Validate fields, then everything they name: model, environment, scorer, files."""
    mistakes: list[str] = []
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(document)
    except ValidationError as error:
        mistakes = [_explain(detail) for detail in error.errors()]
    _refuse(mistakes + _check_names(document, config), source)
    assert config is not None  # or there were mistakes
    return config


def check_config(config: RunConfig) -> None:
    """Check everything that a valid config names. Raises ConfigError with every mistake."""
    _refuse(_check_names(config.model_dump(), config), "the parameters")


def _refuse(mistakes: list[str], source: str) -> None:
    if mistakes:
        listed = "\n".join(f"  {mistake}" for mistake in mistakes)
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise ConfigError(f"{count} in {source}; nothing was started.\n{listed}")


def _check_names(document: dict[str, Any], config: RunConfig | None) -> list[str]:
    """Check whatever the fields name. With mistakes in some sections, the sound ones are still checked."""
    mistakes: list[str] = []

    def check(field: str, work: Any) -> None:
        try:
            found = work()
        except (RollmillError, ValueError) as error:
            found = str(error)
        if isinstance(found, str):
            mistakes.append(f"{field}: {found}")

    def section(name: str) -> Any:
        """The validated section, or None when it has mistakes of its own, which are listed already."""
        model = RunConfig.model_fields[name].annotation
        try:
            return model.model_validate(document.get(name, {}))  # type: ignore[union-attr]
        except ValidationError:
            return None

    if isinstance(name := document.get("name"), str):
        check("name", lambda: check_name("run", name) and None)
    if (model := section("model")) is not None:
        from tasks.models.base import check_base_model

        check("model.base", lambda: check_base_model(model.base, model.revision))
        if model.chat_template is not None and not Path(model.chat_template).is_file():
            mistakes.append(f"model.chat_template: there is no file {model.chat_template!r}.")
    if (environment := section("environment")) is not None:
        check("environment", lambda: make_environment(environment) and None)
    if (reward := section("reward")) is not None:
        check("reward.scorer", lambda: check_name("scorer", scorer_name(reward)) and None)
        field = "reward.scorer" if reward.judge is None else "reward.judge"
        check(field, lambda: check_scorer(reward))
    if (scenarios := section("scenarios")) is not None:
        for split in ("train", "validation"):
            wanted = getattr(scenarios, split)
            if (scenarios.source != "environment") != isinstance(wanted, str):
                kinds = {"file": "the path of a file", "function": "the name of a function"}
                kind = kinds.get(scenarios.source, "a number")
                mistakes.append(
                    f"scenarios.{split}: {wanted!r} is not {kind}, which source {scenarios.source!r} needs."
                )
    if not mistakes and config is not None:
        check("scenarios", lambda: make_scenarios(config) and None)
    return mistakes


def _explain(detail: Any) -> str:
    """One line for one of pydantic's errors: the field, the value, and what to do."""
    path = [str(part) for part in detail["loc"] if not _is_branch(part)]
    field = ".".join(path)
    if detail["type"] == "extra_forbidden":
        known = _fields_at(path[:-1])
        close = difflib.get_close_matches(path[-1], known, n=1)
        fix = f"Did you mean {close[0]}?" if close else f"Known here: {', '.join(known)}."
        return f"{field}: there is no such setting. {fix}"
    if detail["type"] == "missing":
        return f"{field}: this setting has no default and must be given."
    message = detail["msg"].removeprefix("Value error, ")
    if isinstance(detail["input"], dict):  # a rule about several settings, which its message names
        return f"{field}: {message}." if field else f"{message}."
    return f"{field}: {message}, got {detail['input']!r}."


def _is_branch(part: Any) -> bool:
    """Pydantic names the branch of a union (`int`, `constrained-str`, …) as if it were a field."""
    return isinstance(part, str) and (part in {"int", "str", "float", "bool", "none"} or "[" in part)


def _fields_at(path: list[str]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for name in path:
        annotation = model.model_fields[name].annotation
        candidates = [annotation, *get_args(annotation)]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)


def _set(document: dict[str, Any], field: str, value: Any) -> None:
    *parents, last = field.split(".")
    for name in parents:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise ConfigError(f"{field} cannot be set: {name} is not a section.")
    document[last] = value
