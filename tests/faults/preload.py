"""What every run imports, imported once for all of them; see crashes.py."""

import mlflow  # noqa: F401
import peft  # noqa: F401
import torch
import transformers  # noqa: F401

import tasks.grpo.trainer
import tasks.models.adapters  # noqa: F401

torch.set_num_threads(1)
