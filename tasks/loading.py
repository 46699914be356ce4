"""User code by name: `package.module:name`, imported only because the config says so."""

from __future__ import annotations

import importlib
from typing import Any

from storage.errors import ConfigError
from tasks.environments.base import Environment
from tasks.settings import EnvironmentSettings


def load_object(path: str) -> Any:
    """The object that `path` names. Raises ConfigError when it cannot be imported."""
    module_name, separator, name = path.partition(":")
    if not separator or not module_name or not name:
        raise ConfigError(f"{path!r} is not of the form package.module:name.")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # an import runs the user's module, which may raise anything
        raise ConfigError(
            f"{path!r} cannot be imported: {type(error).__name__}: {error}. Is its folder on PYTHONPATH, "
            "or its package installed?"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(f"{module_name} has no {name!r}; {path!r} names nothing.") from None


def make_environment(settings: EnvironmentSettings) -> Environment:
    """A fresh environment. Raises ConfigError when its constructor refuses the arguments."""
    make = load_object(settings.name)
    try:
        return make(**settings.args)
    except Exception as error:  # the user's constructor
        raise ConfigError(
            f"{settings.name} refused environment.args {settings.args!r}: {type(error).__name__}: {error}"
        ) from error
