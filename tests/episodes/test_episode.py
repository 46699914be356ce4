"""One episode: its tokens are exact, its limits hold, and whatever goes wrong in it is stored with it."""

import asyncio
from itertools import count

import pytest

from storage.records import GroupKey, Message, Scenario, StopReason
from tasks.environments import Environment, Step
from tasks.episodes.episode import Player, play_episode
from tasks.inference.sampler import InferenceError
from tasks.models.base import load_tokenizer
from tasks.models.chat import ChatRenderer
from tasks.settings import RolloutSettings
from tests.models.chats import tokenizer as qwen_tokenizer
from tests.scripted import ScriptedSampler

KEY = GroupKey("r", 3, "train", "s", 0)


class Echo(Environment):
    """Says something after every reply, until it has heard `turns`; a subclass breaks one of its methods."""

    turns = 3

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.closed = 0

    async def reset(self, scenario):
        return [Message("user", "Begin.")]

    async def step(self, message):
        self.heard.append(message)
        done = len(self.heard) == self.turns
        return Step(
            [Message("user", f"Heard {len(self.heard)}.")], reward=0.25, done=done, metrics={"heard": 1}
        )

    async def close(self):
        self.closed += 1


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return load_tokenizer(tiny_model, None)


async def play(tokenizer, environment=None, reply=lambda prompt, seed: "ok", max_model_len=512, **settings):
    environment = environment or Echo()
    sampler = ScriptedSampler(tokenizer, reply)
    sampler.policy_version = 3
    player = Player(sampler, ChatRenderer(tokenizer), max_model_len)
    trajectory = await play_episode(
        environment,
        Scenario("s", {}),
        player,
        RolloutSettings(**settings),
        key=KEY,
        sample_no=1,
        temperature=1.0,
    )
    return trajectory, sampler, environment


async def test_the_record_is_what_was_prompted_and_sampled(tokenizer):
    trajectory, sampler, _ = await play(tokenizer)
    assert trajectory.stop_reason is StopReason.COMPLETED
    prompts = [prompt for prompt, _ in sampler.requests]
    for turn, prompt in zip(trajectory.turns, prompts, strict=True):
        assert list(trajectory.token_ids[: turn.start]) == prompt
        assert all(trajectory.mask[turn.start : turn.end])
    assert sum(trajectory.mask) == sum(turn.end - turn.start for turn in trajectory.turns)
    assert [lp is not None for lp in trajectory.logprobs] == list(trajectory.mask)
    assert trajectory.segment_starts == (0,)


async def test_rewards_and_metrics_add_up(tokenizer):
    trajectory, _, environment = await play(tokenizer)
    assert trajectory.environment_reward == pytest.approx(0.75)
    assert [turn.reward for turn in trajectory.turns] == [0.25] * 3
    assert trajectory.metrics == {"heard": 3.0}
    assert environment.closed == 1


async def test_every_turn_has_a_seed_of_its_own_and_reruns_repeat_it(tokenizer):
    first, *_ = await play(tokenizer)
    again, *_ = await play(tokenizer)
    seeds = [turn.seed for turn in first.turns]
    assert len(set(seeds)) == 3
    assert seeds == [turn.seed for turn in again.turns]


async def test_the_turn_limit_ends_the_episode(tokenizer):
    trajectory, sampler, _ = await play(tokenizer, max_turns=2)
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert len(sampler.requests) == 2
    assert trajectory.messages[-1].content == "Heard 2."


async def test_a_prompt_that_does_not_fit_is_never_cut(tokenizer):
    trajectory, sampler, _ = await play(tokenizer, max_model_len=4)
    assert trajectory.stop_reason is StopReason.PROMPT_TOO_LONG
    assert not sampler.requests
    assert not any(trajectory.mask)


async def test_turns_over_the_cap_in_sum_are_kept_whole(tokenizer):
    trajectory, *_ = await play(tokenizer, reply=lambda prompt, seed: [5] * 6, max_tokens_per_turn=6)
    assert trajectory.stop_reason is StopReason.COMPLETED
    assert sum(trajectory.mask) == 18
    assert [turn.finish_reason for turn in trajectory.turns] == ["length"] * 3


async def test_a_cut_reply_can_end_the_episode(tokenizer):
    trajectory, _, environment = await play(
        tokenizer, reply=lambda prompt, seed: [5] * 6, max_tokens_per_turn=6, on_length="stop"
    )
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert not environment.heard


async def test_a_full_context_ends_the_episode(tokenizer):
    whole, *_ = await play(tokenizer)
    room = whole.turns[1].start + 1  # the second reply has room for one token
    trajectory, *_ = await play(tokenizer, max_model_len=room)
    assert trajectory.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert len(trajectory.token_ids) == room


async def test_an_empty_completion_is_stored(tokenizer):
    trajectory, *_ = await play(tokenizer, reply=lambda prompt, seed: [])
    assert trajectory.stop_reason is StopReason.COMPLETED
    assert [turn.end - turn.start for turn in trajectory.turns] == [0, 0, 0]
    assert trajectory.messages[1].content == ""


@pytest.mark.parametrize("method", ["reset", "step"])
async def test_what_an_environment_raises_ends_its_episode_alone(tokenizer, method):
    environment = Echo()

    async def broken(*_):
        raise RuntimeError("boom")

    setattr(environment, method, broken)
    trajectory, *_ = await play(tokenizer, environment)
    assert trajectory.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert trajectory.error == "RuntimeError: boom"
    assert trajectory.environment_reward is None
    assert environment.closed == 1


async def test_a_failing_close_is_noted_and_loses_nothing(tokenizer):
    environment = Echo()

    async def broken():
        raise OSError("stuck")

    environment.close = broken
    trajectory, *_ = await play(tokenizer, environment)
    assert trajectory.stop_reason is StopReason.COMPLETED
    assert trajectory.error == "close() raised OSError: stuck"


async def test_a_slow_environment_runs_into_the_timeout(tokenizer):
    environment = Echo()

    async def slow(*_):
        await asyncio.sleep(60)

    environment.step = slow
    trajectory, *_ = await play(tokenizer, environment, episode_timeout=0.2)
    assert trajectory.stop_reason is StopReason.TIMEOUT
    assert len(trajectory.turns) == 1
    assert environment.closed == 1


async def test_an_environments_own_timeout_is_its_error(tokenizer):
    environment = Echo()

    async def gave_up(*_):
        raise TimeoutError("tool")

    environment.step = gave_up
    trajectory, *_ = await play(tokenizer, environment)
    assert trajectory.stop_reason is StopReason.ENVIRONMENT_ERROR


async def test_a_failing_sampler_keeps_the_turns_before_it(tokenizer):
    turns = count()

    def reply(prompt, seed):
        if next(turns) == 1:
            raise InferenceError("the server is gone")
        return "ok"

    trajectory, *_ = await play(tokenizer, reply=reply)
    assert trajectory.stop_reason is StopReason.INFERENCE_ERROR
    assert trajectory.error == "the server is gone"
    assert len(trajectory.turns) == 1


async def test_cancellation_is_no_trajectory(tokenizer):
    environment = Echo()

    async def slow(*_):
        await asyncio.sleep(60)

    environment.step = slow
    episode = asyncio.create_task(play(tokenizer, environment))
    await asyncio.sleep(0.1)
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert environment.closed == 1


async def test_a_limit_lets_the_environment_say_what_the_episode_is_worth(tokenizer):
    class Graded(Echo):
        async def cut(self, reason):
            return Step(reward=-1.0, metrics={f"cut_{reason}": 1})

    trajectory, *_ = await play(tokenizer, Graded(), max_turns=2)
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert trajectory.metrics == {"heard": 2.0, "cut_max_turns": 1.0}
    assert [turn.reward for turn in trajectory.turns] == [0.25, -0.75]


async def test_a_failed_episode_is_worth_nothing_that_an_environment_could_say(tokenizer):
    class Graded(Echo):
        async def cut(self, reason):
            raise AssertionError("not asked")

    trajectory, *_ = await play(tokenizer, Graded(), max_model_len=4)
    assert trajectory.stop_reason is StopReason.PROMPT_TOO_LONG


async def test_tool_calls_over_the_limit_are_not_run():
    calls = "".join('<tool_call>{"name": "f", "arguments": {}}</tool_call>' for _ in range(2))
    trajectory, _, environment = await play(
        qwen_tokenizer("qwen3"), reply=lambda prompt, seed: calls, max_tool_calls=3, max_model_len=2048
    )
    assert trajectory.stop_reason is StopReason.MAX_TOOL_CALLS
    assert len(environment.heard) == 1
