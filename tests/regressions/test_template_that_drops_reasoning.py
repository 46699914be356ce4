"""T3 (prime-rl 1334, verl 6854): turns were spliced though the template drops the thoughts of earlier ones.

The policy would have been trained behind a context that it never sees when it is deployed.
"""

from __future__ import annotations

import pytest

from storage.records import Message
from tasks.models.chat import ChatRenderer
from tests.models.chats import ids_of, renderer, text_of
from tests.regressions.episodes import played
from tests.tiny import CHATML, make_tokenizer

THOUGHT = "<think>\nlow or high\n</think>\n\n7"


async def test_a_dropped_thought_begins_a_segment_with_a_prefix_of_its_own():
    trajectory = await played("qwen3", [ids_of("qwen3", THOUGHT), ids_of("qwen3", THOUGHT)])
    start = trajectory.segment_starts[1]
    assert trajectory.segment_starts == (0, start)
    assert [turn.segment for turn in trajectory.turns] == [0, 1]
    first, second = trajectory.turns
    assert first.end == start  # nothing was laid behind the first reply
    prefix = list(trajectory.token_ids[start : second.start])
    assert prefix == renderer("qwen3").prompt(trajectory.messages[:3], ())
    assert "low or high" not in text_of("qwen3", prefix)
    assert not any(trajectory.mask[start : second.start])
    # the thought itself was sampled, is kept and trained
    assert "low or high" in text_of("qwen3", list(trajectory.token_ids[first.start : first.end]))
    assert trajectory.messages[1].reasoning == "low or high"


async def test_thoughts_stay_while_tools_answer():
    trajectory = await played(
        "qwen3", [ids_of("qwen3", THOUGHT), ids_of("qwen3", THOUGHT)], [Message("tool", "4")]
    )
    assert trajectory.segment_starts == (0,)


async def test_a_users_message_ends_the_thoughts_of_all_turns_before_it():
    """The second extension would still fit its own turn; the first turn is what has changed."""
    replies = [ids_of("qwen3", THOUGHT), ids_of("qwen3", "8"), ids_of("qwen3", "9")]
    trajectory = await played("qwen3", replies, [Message("tool", "4"), Message("user", "And?")])
    assert [turn.segment for turn in trajectory.turns] == [0, 0, 1]


async def test_a_reply_without_a_thought_is_extended():
    """The template would write an empty thought right after it, and takes that back one turn later."""
    trajectory = await played("qwen3", [ids_of("qwen3", "7"), ids_of("qwen3", "8")])
    assert trajectory.segment_starts == (0,)


@pytest.mark.parametrize("kept", ["", "<think>\n\n</think>\n\n"])
def test_a_template_that_never_shows_thoughts_is_not_extended_behind_one(kept):
    """DeepSeek-R1's way: they are gone from the very turn in which they were sampled."""
    hiding = CHATML.replace(
        "message['content']",
        f"('{kept}' if message.role == 'assistant' else '') + message.content.split('</think>')[-1]",
    ).replace("\n", "\\n")
    chat = ChatRenderer(made := make_tokenizer(hiding))
    sampled = made.encode(f"{THOUGHT}<|im_end|>")
    messages = [Message("user", "?"), chat.parse(sampled).message, Message("user", "And?")]
    assert messages[1].reasoning == "low or high"
    assert chat.extension(messages, (), sampled) is None
