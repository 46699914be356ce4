"""T7, T8 (rLLM 575, prime-rl 1986, tinker 506, verifiers 360): prompts and replies at their limits.

A prompt over the limit was cut from the left, turns were cut by a cap meant for one, and replies cut by
length were scored as wrong answers. Here nothing is cut, and the stop reason says which limit was met.
"""

import pytest

from storage.records import Message, StopReason
from tests.models.chats import tokenizer
from tests.regressions.episodes import played

CHATML = tokenizer("chatml")
WORDS = CHATML.encode("one two three four five six", add_special_tokens=False)


async def test_a_prompt_over_the_limit_is_refused_whole():
    trajectory = await played("chatml", [WORDS], max_model_len=8)
    assert trajectory.stop_reason is StopReason.PROMPT_TOO_LONG
    assert trajectory.stop_reason.is_failure
    assert len(trajectory.token_ids) > 8  # as it was, not cut
    assert trajectory.environment_reward is None


async def test_three_turns_over_the_cap_of_one_in_sum_are_kept_whole():
    cap = len(WORDS) + 1
    trajectory = await played("chatml", [WORDS] * 3, max_tokens_per_turn=cap)
    assert sum(trajectory.mask) == 3 * cap
    assert trajectory.stop_reason is StopReason.COMPLETED


@pytest.mark.parametrize(
    ("on_length", "reason"), [("stop", StopReason.MAX_TOKENS), ("continue", "completed")]
)
async def test_a_reply_cut_by_its_length_says_so(on_length, reason):
    trajectory = await played("chatml", [WORDS], max_tokens_per_turn=3, on_length=on_length)
    assert [turn.finish_reason for turn in trajectory.turns] == ["length"]
    assert trajectory.stop_reason == reason


async def test_the_tokens_of_an_episode_have_a_limit():
    trajectory = await played("chatml", [WORDS] * 3, max_tokens_per_episode=len(WORDS) + 4)
    assert sum(trajectory.mask) == len(WORDS) + 4
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert [turn.finish_reason for turn in trajectory.turns] == ["stop", "length"]


async def test_a_limit_met_between_two_replies_ends_the_episode_too():
    trajectory = await played("chatml", [WORDS] * 3, max_tokens_per_episode=len(WORDS) + 1)
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert len(trajectory.turns) == 1


async def test_a_conversation_that_the_template_refuses_is_its_environments_error():
    """It ended the whole group's task: one odd answer of a tool cost every rollout of its group."""
    refusing = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    late = await played("chatml", [WORDS] * 2, [Message("tool", "x")], chat_template=refusing)
    assert late.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert "no tools here" in late.error
    assert len(late.turns) == 1
    first = await played("chatml", [WORDS], begin=Message("tool", "x"), chat_template=refusing)
    assert first.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert not first.turns
