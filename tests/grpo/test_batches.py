"""Packing: nothing leaks, shared prompts are computed once, segments share only what they have in common."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.grpo.attention import dense_mask, packed_attention
from tasks.grpo.batches import Layout, TrainingSequence, pack
from tasks.grpo.logprobs import use_packing
from tests.grpo import reference
from tests.grpo.policies import make_sequence, update


def test_nothing_leaks_between_packed_sequences(policy, batch):
    together, *_ = update(policy, batch)
    sequences = {s.trajectory_id: s for s in batch}
    for stats in together.token_stats:
        expected = reference.token_logprobs(policy, sequences[stats.trajectory_id])
        assert stats.trainer_logprobs == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_shared_prompt_is_computed_once(policy):
    group = [make_sequence(str(n), "g", prompt=range(100, 150), turns=((20 + n,),)) for n in range(4)]
    result, *_ = update(policy, group)
    assert result.steps[0].forward_tokens == 50 + 4


def test_a_later_segment_does_not_shorten_the_prefix_of_the_others():
    first = [make_sequence(str(n), prompt=range(100, 150), turns=((20,),)) for n in range(4)]
    later = [
        make_sequence(str(n), prompt=(100, 101, n, *range(200, 240)), turns=((20,),), offset=60)
        for n in range(4)
    ]
    mixed = [sequence for pair in zip(first, later, strict=True) for sequence in pair]
    rows = list(pack(mixed, 4096))
    assert sorted(len(row.token_ids) for row in rows) == [54, 2 + 4 * 42]


def test_sampled_tokens_are_never_shared():
    twins = [make_sequence(name, turns=((20, 21, 22),)) for name in "ab"]
    [row] = pack(twins, 4096)
    assert row.layout == Layout(3, (3, 3))
    assert row.predictors == (2, 3, 4, 2, 6, 7)


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.sampled_from("gh"), tokens, tokens), min_size=1, max_size=8), st.integers(1, 40))
def test_every_sampled_token_is_predicted_from_its_own_sequence(members, budget):
    sequences = [
        make_sequence(str(n), group, prompt=prompt, turns=(reply,))
        for n, (group, prompt, reply) in enumerate(members)
    ]
    rows = list(pack(sequences, budget))
    packed = [s for row in rows for s in row.sequences]
    assert sorted(s.trajectory_id for s in packed) == sorted(s.trajectory_id for s in sequences)
    for row in rows:
        assert len({s.group_id for s in row.sequences}) == 1
        assert len(row.token_ids) <= budget or len(row.sequences) == 1
        seen = dense_mask(row.layout, torch.device("cpu"))[0, 0]
        targets = [(s, index) for s in row.sequences for index in s.sampled]
        for (sequence, index), predictor in zip(targets, row.predictors, strict=True):
            # What the predicting token sees, in order, is exactly what came before in its own sequence.
            visible = [row.token_ids[i] for i in seen[predictor].nonzero()[:, 0]]
            assert visible == list(sequence.token_ids[:index])
            assert row.layout.positions[predictor] == index - 1


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([None, 3, 30]))
def test_attention_without_the_mask_equals_attention_with_it(prefix, suffixes, window):
    layout = Layout(prefix, tuple(suffixes))
    length = prefix + sum(suffixes)
    draw = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(1, heads, length, 8, generator=draw, dtype=torch.float64, requires_grad=True)
        for heads in (4, 2, 2)
    )
    module = torch.nn.Module()
    module.num_key_value_groups = 2
    mask = dense_mask(layout, torch.device("cpu"), window)
    plain, _ = packed_attention(module, query, key, value, mask, scaling=0.3)
    ours, _ = packed_attention(
        module, query, key, value, None, layout=layout, scaling=0.3, sliding_window=window
    )
    torch.testing.assert_close(ours, plain)
    pull = torch.randn(plain.shape, generator=draw, dtype=torch.float64)
    for mine, theirs in zip(
        torch.autograd.grad(ours, (query, key, value), pull),
        torch.autograd.grad(plain, (query, key, value), pull),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def _tiny(kind, **options):
    """A tiny model of another architecture, with an adapter."""
    import transformers
    from peft import LoraConfig, get_peft_model

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        pad_token_id=0,
        **options,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).double()
        lora = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
        return get_peft_model(model, lora, autocast_adapter_dtype=False).double()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Qwen3", {"head_dim": 16}),
        ("Qwen2", {}),
        ("Mistral", {"sliding_window": 4}),
        ("Gemma3", {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16}),
    ],
)
def test_other_architectures_are_packed_exactly(kind, options, batch):
    """Sliding windows among them, over rows longer than the window."""
    if kind == "Gemma3":
        kind = "Gemma3Text"
        import transformers

        transformers.Gemma3TextForCausalLM = transformers.Gemma3ForCausalLM
    model = _tiny(kind, **options)
    _, gradients, _ = update(model, batch)
    theirs, _ = reference.gradients(model, reference.loss(model, batch))
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-6, rtol=1e-6)


def test_a_model_whose_logits_pass_through_more_than_its_head_is_refused():
    model = _tiny("Granite", logits_scaling=8.0)
    with pytest.raises(ValueError, match="one by one"):
        use_packing(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": (True, False, True)}, "begins with a sampled token"),
        ({"mask": (False, True)}, "must be as many"),
        ({"advantage": float("nan")}, "no finite number"),
    ],
)
def test_sequences_that_cannot_be_trained_on_are_refused(change, message):
    fields = {
        "token_ids": (1, 2, 3),
        "mask": (False, True, True),
        "logprobs": (None, -1.0, -1.0),
        "advantage": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        TrainingSequence("t", "g", offset=0, **{**fields, **change})


@pytest.mark.parametrize(("prompts", "replies"), list(product([(1,), (1, 2, 3, 4)], [(5,), (5, 6, 7)])))
def test_one_sequence_is_plain_causal_attention(policy, prompts, replies):
    sequence = make_sequence(prompt=prompts, turns=(replies,))
    result, *_ = update(policy, [sequence])
    expected = reference.token_logprobs(policy, sequence)
    assert result.token_stats[0].trainer_logprobs == pytest.approx(expected.tolist(), abs=1e-6)
