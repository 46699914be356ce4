"""Play one episode: prompt with ids, sample ids, hand the reply to the environment, extend, repeat.

Whatever goes wrong inside an episode ends that episode alone, and is stored with its reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from storage.records import GroupKey, Message, Scenario, StopReason, Trajectory, Turn
from tasks.environments.base import Environment, Step
from tasks.episodes.token_record import TokenRecord
from tasks.inference.sampler import InferenceError, Sampler, SamplingParams
from tasks.models.base import ModelError
from tasks.models.chat import ChatRenderer
from tasks.settings import RolloutSettings


@dataclass(frozen=True)
class Player:
    """Who plays: the sampler that serves the policy, and how its conversations become tokens."""

    sampler: Sampler
    renderer: ChatRenderer
    max_model_len: int


class _Ended(Exception):
    """The episode is over for `reason`."""

    def __init__(self, reason: StopReason, error: str | None = None) -> None:
        self.reason, self.error = reason, error


@dataclass
class _Episode:
    """What has happened so far; becomes the trajectory, however far it came."""

    key: GroupKey
    sample_no: int
    policy_version: int
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.monotonic)
    record: TokenRecord = field(default_factory=TokenRecord)
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    turn_rewards: dict[int, float] = field(default_factory=dict)
    metrics: Counter[str] = field(default_factory=Counter)
    calls: int = 0  # tool calls that the policy has asked for

    def trajectory(self, stop: _Ended, temperature: float, metadata: Mapping[str, Any]) -> Trajectory:
        rewards = self.turn_rewards
        return Trajectory(
            key=self.key,
            sample_no=self.sample_no,
            policy_version=self.policy_version,
            messages=tuple(self.messages),
            token_ids=tuple(self.record.token_ids),
            mask=tuple(self.record.mask),
            logprobs=tuple(self.record.logprobs),
            segment_starts=tuple(self.record.segment_starts),
            turns=tuple(
                Turn(**{**vars(turn), "reward": rewards.get(turn.turn)})  # known after the turn was stored
                for turn in self.turns
            ),
            prompt_digest=self.record.prompt_digest,
            stop_reason=stop.reason,
            started_at=self.started_at,
            seconds=time.monotonic() - self.clock,
            temperature=temperature,
            error=stop.error,
            environment_reward=sum(rewards.values()) if rewards else None,
            metrics={name: float(value) for name, value in self.metrics.items()},
            metadata=metadata,
        )


async def play_episode(
    environment: Environment,
    scenario: Scenario,
    player: Player,
    settings: RolloutSettings,
    *,
    key: GroupKey,
    sample_no: int,
    temperature: float,
) -> Trajectory:
    """Play `scenario` once; always returns a trajectory, failed ones included, and closes the environment.

    Raises:
        asyncio.CancelledError: the caller gave up; nothing of the episode is kept.
    """
    episode = _Episode(key, sample_no, player.sampler.policy_version)
    try:
        async with asyncio.timeout(settings.episode_timeout):
            stop = await _play(episode, environment, scenario, player, settings, temperature)
    except TimeoutError:
        stop = _Ended(StopReason.TIMEOUT, f"the episode took longer than {settings.episode_timeout:g} s")
    finally:
        close_error = await _close(environment)
    if close_error is not None and stop.error is None:
        stop = _Ended(stop.reason, close_error)
    return episode.trajectory(stop, temperature, metadata=dict(scenario.metadata))


async def _play(
    episode: _Episode,
    environment: Environment,
    scenario: Scenario,
    player: Player,
    settings: RolloutSettings,
    temperature: float,
) -> _Ended:
    try:
        return await _play_turns(episode, environment, scenario, player, settings, temperature)
    except _Ended as ended:
        stop = ended
    except InferenceError as error:
        return _Ended(StopReason.INFERENCE_ERROR, str(error))
    except ModelError as error:  # the chat template refuses what the environment says, or the order of it
        return _Ended(StopReason.ENVIRONMENT_ERROR, str(error))
    if stop.reason.is_failure:
        return stop
    try:
        last = await _in_environment(environment.cut(stop.reason))
    except _Ended as ended:
        return ended
    _count(episode, last)
    return stop


async def _play_turns(
    episode: _Episode,
    environment: Environment,
    scenario: Scenario,
    player: Player,
    settings: RolloutSettings,
    temperature: float,
) -> _Ended:
    """Play until the environment is done. Raises _Ended where a limit or a fault ends the episode."""
    episode.messages.extend(await _in_environment(environment.reset(scenario)))
    prompt = player.renderer.prompt(episode.messages, environment.tools)
    episode.record.begin_segment(prompt)
    if len(prompt) >= player.max_model_len:
        raise _Ended(
            StopReason.PROMPT_TOO_LONG,
            f"the first prompt has {len(prompt)} tokens and the context {player.max_model_len}",
        )
    for turn in range(settings.max_turns):
        sampled, errors = await _sample_turn(episode, turn, player, settings, temperature)
        if errors:
            episode.metrics["parse_errors"] += len(errors)
            if settings.on_parse_error == "stop":
                raise _Ended(StopReason.PARSE_ERROR, "; ".join(errors))
        answers = [Message("tool", f"Error: {error}") for error in errors]
        reply = episode.messages[-1]
        if reply.tool_calls or not errors:
            _refuse_more_calls(episode, len(reply.tool_calls), settings)
            step = await _in_environment(environment.step(reply))
            _count(episode, step)
            answers = [*step.messages, *answers]
            if step.done:
                episode.messages.extend(answers)
                return _Ended(StopReason.COMPLETED)
        if turn + 1 < settings.max_turns:
            _extend(episode, answers, sampled, environment.tools, player)
        else:
            episode.messages.extend(answers)
    raise _Ended(StopReason.MAX_TURNS)


async def _sample_turn(
    episode: _Episode, turn: int, player: Player, settings: RolloutSettings, temperature: float
) -> tuple[Sequence[int], Sequence[str]]:
    """Sample one reply and store it; returns its ids and what was wrong with its tool calls."""
    room = player.max_model_len - len(episode.record.context)
    if room <= 0:
        raise _Ended(StopReason.CONTEXT_OVERFLOW)
    limit = min(room, settings.max_tokens_per_turn)
    if settings.max_tokens_per_episode is not None:
        left = settings.max_tokens_per_episode - sum(episode.record.mask)
        if left <= 0:
            raise _Ended(StopReason.MAX_TOKENS)
        limit = min(limit, left)
    params = SamplingParams(temperature, limit, player.renderer.stop_token_ids)
    seed = episode.key.seed(episode.sample_no, turn)
    version, started_at, clock = player.sampler.policy_version, datetime.now(UTC), time.monotonic()
    completion = await player.sampler.sample(episode.record.context, params, seed=seed)
    start, end = episode.record.append_sampled(completion.token_ids, completion.logprobs)
    episode.turns.append(
        Turn(
            turn=turn,
            segment=episode.record.segment,
            start=start,
            end=end,
            finish_reason=completion.finish_reason,
            policy_version=version,
            seed=seed,
            reward=None,
            started_at=started_at,
            seconds=time.monotonic() - clock,
        )
    )
    reply = player.renderer.parse(completion.token_ids)
    episode.messages.append(reply.message)
    if completion.finish_reason == "length":
        if room == limit < settings.max_tokens_per_turn:
            raise _Ended(StopReason.CONTEXT_OVERFLOW)
        if settings.on_length == "stop" or limit < settings.max_tokens_per_turn:
            raise _Ended(StopReason.MAX_TOKENS)
    return completion.token_ids, reply.errors


def _refuse_more_calls(episode: _Episode, calls: int, settings: RolloutSettings) -> None:
    """Count a reply's tool calls; those of a reply that goes over the limit are not run."""
    episode.calls += calls
    if settings.max_tool_calls is not None and episode.calls > settings.max_tool_calls:
        raise _Ended(StopReason.MAX_TOOL_CALLS)


def _count(episode: _Episode, step: Step) -> None:
    """Add a step's metrics and reward to those of the last turn."""
    episode.metrics.update(step.metrics)
    if step.reward is not None and episode.turns:
        turn = episode.turns[-1].turn
        episode.turn_rewards[turn] = episode.turn_rewards.get(turn, 0.0) + float(step.reward)


def _extend(
    episode: _Episode,
    answers: Sequence[Message],
    sampled: Sequence[int],
    tools: Sequence[Mapping[str, Any]],
    player: Player,
) -> None:
    """Lay the environment's messages behind the sampled tokens, or begin a segment where that cannot be."""
    episode.messages.extend(answers)
    addition = player.renderer.extension(episode.messages, tools, sampled)
    if addition is None:
        episode.record.begin_segment(player.renderer.prompt(episode.messages, tools))
    else:
        episode.record.extend(addition)


async def _in_environment(work: Any) -> Any:
    """Await the user's code; whatever it raises ends the episode as the environment's error."""
    try:
        return await work
    except TimeoutError as error:
        # Its own, not the episode's: that one cancels, and arrives here as CancelledError.
        raise _Ended(StopReason.ENVIRONMENT_ERROR, f"TimeoutError: {error}") from error
    except Exception as error:
        raise _Ended(StopReason.ENVIRONMENT_ERROR, f"{type(error).__name__}: {error}") from error


async def _close(environment: Environment) -> str | None:
    try:
        await environment.close()
    except Exception as error:
        return f"close() raised {type(error).__name__}: {error}"
    return None
