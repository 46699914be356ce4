"""Faults by the boundary that they cross. Each message says what was being done, on what, and what to do."""

from __future__ import annotations


class RollmillError(Exception):
    """A fault that a user can act on: the command line prints its text, without a traceback."""


class ConfigError(RollmillError):
    """The configuration is wrong; nothing was started."""


class ScenarioError(RollmillError):
    """Scenarios could not be made or loaded."""


class StoreError(RollmillError):
    """The store refused: a name, a lease, a broken file, or stages that no longer fit each other."""


class UpdateError(RollmillError):
    """The policy could not be updated from what is stored."""


class RolloutError(RollmillError):
    """A step's rollouts could not be collected."""
