"""W2: one seed for every request of a group, and the members are copies of each other (verl 2646).

A seed is a function of run, step, split, scenario, group and sample number: members differ, a rerun agrees.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from storage.records import GroupKey
from tasks.inference.sampler import SamplingParams
from tasks.inference.transformers_sampler import TransformersSampler
from tests.inference.conftest import SETTINGS

KEY = GroupKey(run="r", step=3, split="train", scenario_id="s", group_no=0)


async def test_members_of_a_group_differ_and_a_rerun_repeats_them(tiny_model):
    params = SamplingParams(1.0, 12, ())

    async def group(sampler, key):
        replies = (sampler.sample([5, 6, 7], params, seed=key.seed(number, turn=0)) for number in range(8))
        return [completion.token_ids for completion in await asyncio.gather(*replies)]

    async with TransformersSampler(tiny_model, SETTINGS) as sampler:
        first = await group(sampler, KEY)
        assert len(set(first)) == 8
        assert await group(sampler, KEY) == first
        assert not set(await group(sampler, replace(KEY, step=4))) & set(first)
