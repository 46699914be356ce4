"""From settings to the scorer that they name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Protocol

from storage.errors import ConfigError
from storage.records import JudgeCall, Scenario, Score, Trajectory
from tasks.loading import load_object
from tasks.rewards.judge import Judge, ReplyCache, check_judge
from tasks.rewards.programmatic import ProgrammaticScorer, environment_reward
from tasks.rewards.ruler import DEFAULT_RUBRIC, RulerScorer
from tasks.settings import RewardSettings


class Scorer(Protocol):
    """Gives each trajectory of a step a score; `digest` names whatever the scores depend on."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def judge_calls(self) -> Sequence[JudgeCall]:
        """What a judge was asked while scoring."""

    async def score(
        self, trajectories: Sequence[Trajectory], scenarios: Mapping[str, Scenario]
    ) -> list[Score]:
        """A score for each trajectory, in their order. Failed rollouts, and what could not be scored, have a
        null reward and say why."""


def scorer_name(settings: RewardSettings) -> str:
    """Name of the scorer as it stands in paths and in SQL: by default `package.module.function`."""
    return settings.name or settings.scorer.replace(":", ".")


def make_scorer(settings: RewardSettings, replies: ReplyCache | None = None) -> Scorer:
    """The scorer that `settings` name, with the replies that its judge has given before.

    Raises:
        ConfigError: its function cannot be imported, or does not take its arguments.
    """
    name = scorer_name(settings)
    if settings.judge is not None:
        return RulerScorer(name, Judge(settings.judge, replies), settings.rubric or DEFAULT_RUBRIC)
    if settings.scorer == "environment":
        return ProgrammaticScorer(name, environment_reward, {})
    function = load_object(settings.scorer)
    try:
        inspect.signature(function).bind(None, None, **settings.args)
    except TypeError as error:
        raise ConfigError(
            f"{settings.scorer} cannot be called with a trajectory, a scenario and reward.args "
            f"{settings.args!r}: {error}."
        ) from error
    return ProgrammaticScorer(name, function, settings.args)


def check_scorer(settings: RewardSettings) -> None:
    """Find out before anything starts whether the scorer can score. Raises ConfigError when it cannot."""
    make_scorer(settings)
    if settings.judge is not None:
        check_judge(settings.judge)
