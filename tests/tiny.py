"""A tiny chat model, made in a second: two Llama layers and a byte-level tokenizer with ChatML tokens."""

from __future__ import annotations

from pathlib import Path

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = [
    "The quick brown fox counts to ten and asks why. Too low. Too high. Guess again.",
    "I think of a number from one to four. Reply with one number and nothing else.",
    "system user assistant tool",
]


def make_tiny_model(folder: Path, *, seed: int = 0, chat_template: str = CHATML) -> Path:
    """Write a random model (vocabulary 512, width 64, head size 32) with its tokenizer; returns `folder`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer(chat_template)
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=512,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=1024,
                initializer_range=0.1,  # far enough from uniform for differences to show
                tie_word_embeddings=True,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    model.save_pretrained(folder)
    return folder


def make_tokenizer(chat_template: str | None = CHATML, extra_tokens: tuple[str, ...] = ()):
    """A byte-level BPE tokenizer in which every byte has a token, and digits stand alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500 - len(extra_tokens),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    fast.add_tokens(list(extra_tokens))
    fast.chat_template = chat_template
    return fast
