"""T9: a character whose bytes span several tokens, and a turn limit inside it."""

from __future__ import annotations

import pytest

from tests.models.chats import FAMILIES, ids_of, renderer
from tests.regressions.episodes import played

SNOWMAN = "☃"


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_character_of_three_tokens_is_decoded_from_the_whole_reply(family):
    sampled = ids_of(family, SNOWMAN)
    assert len(sampled) == 3
    trajectory = await played(family, [sampled])
    assert trajectory.messages[1].content == SNOWMAN


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", [1, 2])
async def test_a_limit_inside_a_character_keeps_the_ids_and_closes_the_turn(family, limit):
    chat, sampled = renderer(family), ids_of(family, SNOWMAN)
    trajectory = await played(family, [sampled, sampled], max_tokens_per_turn=limit)
    first, second = trajectory.turns
    assert first.finish_reason == "length"
    assert list(trajectory.token_ids[first.start : first.end]) == sampled[:limit]
    assert trajectory.messages[1].content == "\N{REPLACEMENT CHARACTER}"
    assert trajectory.segment_starts == (0,)  # the text is broken and the ids are not: they are extended
    assert trajectory.token_ids[first.end] == chat.stop_token_ids[0]
    assert not trajectory.mask[first.end]
    assert second.start > first.end
