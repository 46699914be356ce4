"""What every sampler keeps to, on each of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tasks.inference.sampler import NO_POLICY, InferenceError, SamplingParams
from tests.inference.conftest import CONTEXT, PROBE

TOLERANCE = 1e-3  # nats, float32
LONG_PROMPT = [10 + i % 400 for i in range(300)]  # more than two blocks of vLLM's prefix cache
EOS = 2  # <|im_end|> of the tiny model

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(
    params=[
        "transformers_sampler",
        pytest.param("vllm_sampler", marks=pytest.mark.vllm),
        pytest.param("vllm_lora_sampler", marks=pytest.mark.vllm),
    ]
)
def sampler(request):
    return request.getfixturevalue(request.param)


def trainer_logprobs(model, prompt, completion, temperature):
    """What transformers in float32 gives the sampled tokens at the sampling temperature."""
    import torch

    ids = torch.tensor([[*prompt, *completion.token_ids]])
    with torch.inference_mode():
        logprobs = (model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature).log_softmax(-1)
    return logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0].tolist()


def prompts(count):
    return [[5, 6, *range(20, 22 + i % 7), 30 + i] for i in range(count)]


async def sample_all(sampler, prompts, params):
    return await asyncio.gather(
        *(sampler.sample(prompt, params, seed=seed) for seed, prompt in enumerate(prompts))
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
async def test_logprobs_are_those_of_the_trainer_at_the_temperature(sampler, policies, temperature):
    """L5: at a temperature that is not 1, the first importance ratio is 1 on every token."""
    await sampler.load_policy(policies[0].weights, 3)
    asked = prompts(24)
    completions = await sample_all(sampler, asked, SamplingParams(temperature, 24, ()))
    assert sampler.policy_version == 3
    for prompt, completion in zip(asked, completions, strict=True):
        assert len(completion.token_ids) == len(completion.logprobs) == 24
        assert completion.logprobs == pytest.approx(
            trainer_logprobs(policies[0].model, prompt, completion, temperature), abs=TOLERANCE
        )


async def test_a_stop_token_ends_the_reply_and_belongs_to_it(sampler, policies):
    stops = (40, 41, 42, 43, 44, 45, 46, 47)
    completions = await sample_all(sampler, prompts(24), SamplingParams(1.0, 200, stops))
    stopped = [completion for completion in completions if completion.finish_reason == "stop"]
    assert stopped
    for completion in completions:
        assert not set(completion.token_ids[:-1]) & set(stops)
        assert (completion.token_ids[-1] in stops) == (completion.finish_reason == "stop")
        assert len(completion.token_ids) == len(completion.logprobs)


async def test_a_reply_without_a_stop_token_says_length(sampler):
    """T8: the caller can tell a reply that was cut from one that ended."""
    completion = await sampler.sample([5, 6, 7], SamplingParams(1.0, 7, ()), seed=0)
    assert (len(completion.token_ids), completion.finish_reason) == (7, "length")


async def test_the_models_own_end_token_ends_nothing_that_was_not_asked_for(sampler, tiny_model, policies):
    params = SamplingParams(2.0, 300, ())
    completions = await sample_all(sampler, prompts(16), params)
    assert any(EOS in completion.token_ids for completion in completions)
    assert {len(completion.token_ids) for completion in completions} == {300}


async def test_members_of_a_group_differ_and_a_seed_repeats(sampler):
    """W2: one prompt under different seeds gives different replies, under the same seed the same one."""
    params = SamplingParams(1.0, 16, ())
    first = await asyncio.gather(*(sampler.sample([5, 6, 7], params, seed=seed) for seed in range(8)))
    again = [await sampler.sample([5, 6, 7], params, seed=seed) for seed in range(8)]
    assert len({completion.token_ids for completion in first}) == 8
    assert [completion.token_ids for completion in again] == [completion.token_ids for completion in first]


async def test_a_reply_may_fill_the_context_to_the_last_token(sampler):
    completion = await sampler.sample(
        LONG_PROMPT, SamplingParams(1.0, CONTEXT - len(LONG_PROMPT), ()), seed=0
    )
    assert len(completion.token_ids) == CONTEXT - len(LONG_PROMPT)


@pytest.mark.parametrize(("length", "new"), [(CONTEXT, 1), (CONTEXT - 5, 6), (CONTEXT + 1, 1), (0, 1)])
async def test_what_does_not_fit_is_refused_and_never_cut(sampler, length, new):
    """T7: nothing is dropped from the left to make room, nor the reply silently shortened."""
    with pytest.raises(InferenceError, match=f"{length} tokens and {new} new ones .* {CONTEXT}"):
        await sampler.sample([10 + i % 400 for i in range(length)], SamplingParams(1.0, new, ()), seed=0)


async def test_new_weights_leave_nothing_of_the_old_ones(sampler, policies):
    """W1: the policy changes back and forth; a prefix cached under the old weights would show at once."""
    for version, policy in enumerate([policies[0], policies[1], policies[1], policies[0]]):
        await sampler.load_policy(policy.weights, version)
        assert sampler.policy_version == version
        completions = await sample_all(sampler, [LONG_PROMPT] * 4, SamplingParams(1.0, 8, ()))
        for completion in completions:
            assert completion.logprobs == pytest.approx(
                trainer_logprobs(policy.model, LONG_PROMPT, completion, 1.0), abs=TOLERANCE
            )


async def test_many_long_prompts_at_once_are_all_answered(sampler, policies):
    """vLLM 0.32 dies on a CPU when it splits the prompt of a seeded request; these invite it to."""
    asked = [[10 + (i * k) % 400 for i in range(1, 401)] for k in range(1, 17)]
    await sampler.load_policy(policies[0].weights, 0)
    completions = await sample_all(sampler, asked, SamplingParams(1.0, 4, ()))
    for prompt, completion in zip(asked, completions, strict=True):
        assert completion.logprobs == pytest.approx(
            trainer_logprobs(policies[0].model, prompt, completion, 1.0), abs=TOLERANCE
        )


async def test_a_probe_of_other_weights_is_refused_with_both_numbers(sampler, policies):
    """W1: the adapter of one step under the probe of another."""
    wrong = replace(policies[0].weights, adapter_folder=policies[1].weights.adapter_folder)
    with pytest.raises(InferenceError) as caught:
        await sampler.load_policy(wrong, 9)
    found = await sampler.prompt_logprobs(PROBE)
    expected = policies[0].weights.probe_logprobs
    worst = max(range(len(found)), key=lambda i: abs(found[i] - expected[i]))
    for part in (
        f"sampler {found[worst]:.6f}"[:-2],
        f"trainer {expected[worst]:.6f}",
        f"position {worst}",
        "0.001",
    ):
        assert part in str(caught.value)
    assert sampler.policy_version == NO_POLICY
    await sampler.load_policy(policies[0].weights, 10)  # and it can go on with the right ones


async def test_weights_do_not_change_under_a_request(sampler, policies):
    request = asyncio.create_task(sampler.sample([5, 6, 7], SamplingParams(1.0, 400, ()), seed=0))
    await asyncio.sleep(0.05)
    with pytest.raises(InferenceError, match="under way"):
        await sampler.load_policy(policies[0].weights, 11)
    assert len((await request).token_ids) == 400
