"""The policy in training: base model, adapter and optimiser in memory, at one step of a run at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.files import digest_tree
from storage.layout import adapter_folder
from storage.stages import Stage, digest_settings
from storage.version import code_version
from tasks.models.base import default_cache_dir, resolve_base_model
from tasks.run import Run

if TYPE_CHECKING:
    from tasks.grpo.batches import TrainingSequence
    from tasks.grpo.results import UpdateResult
    from tasks.grpo.trainer import Trainer

OPTIMIZER_FILE = "optimizer.safetensors"


class Learner:
    """Loads what it needs when it is first asked, and keeps it from step to step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._trainer: Trainer | None = None
        self._step: int | None = None  # the step whose adapter and optimiser state are in memory

    def initialise(self, stage: Stage) -> None:
        """Publish the adapter of step 0, which leaves the base model as it is."""
        from tasks.models.adapters import create_adapter

        model = create_adapter(self._base_model(), self.run.config.model.lora, self.run.config.seed)
        self._use(model, step=0)
        self._publish(stage, 0, parent=None)

    def update(
        self,
        step: int,
        sequences: Sequence[TrainingSequence],
        progress: Callable[[int, int], None],
    ) -> UpdateResult:
        """Train from the adapter of `step` on `sequences`; `publish` stores what came of it."""
        trainer = self._at(step)
        self._step = None  # until it is known what the weights are
        result = trainer.update(sequences, seed=_seed(self.run, step), progress=progress)
        self._step = step + 1
        return result

    def publish(self, stage: Stage, step: int) -> None:
        """Publish what is in memory as the adapter of `step`, made from that of the step before."""
        assert self._step == step, (self._step, step)
        self._publish(stage, step, parent=step - 1)

    def _at(self, step: int) -> Trainer:
        if self._step != step or self._trainer is None:
            from safetensors.torch import load_file

            from tasks.models.adapters import load_adapter

            folder = self.run.store.adapter(self.run.adapter_of(step), step)
            self._use(load_adapter(self._base_model(), folder), step)
            assert self._trainer is not None
            if (folder / OPTIMIZER_FILE).exists():
                self._trainer.load_optimizer_state(load_file(folder / OPTIMIZER_FILE))
        return self._trainer

    def _use(self, model: Any, step: int) -> None:
        from tasks.grpo.trainer import Trainer

        config = self.run.config
        self._trainer = Trainer(model, config.update, temperature=config.rollouts.temperature)
        self._step = step

    def _base_model(self) -> Any:
        from tasks.models.base import load_base_model

        return load_base_model(base_folder(self.run), self.run.config.model.dtype)

    def _publish(self, stage: Stage, step: int, parent: int | None) -> None:
        from safetensors.torch import save_file

        from tasks.models.adapters import probe_ids, probe_logprobs, save_adapter
        from tasks.models.base import load_tokenizer

        assert self._trainer is not None
        run, config = self.run, self.run.config
        folder = run.store.files.scratch(stage.key.folder)
        save_adapter(self._trainer.model, folder, config.model.base)
        if state := self._trainer.optimizer_state():
            save_file(state, folder / OPTIMIZER_FILE)
        tokenizer = load_tokenizer(base_folder(run), config.model.chat_template)
        ids = probe_ids(tokenizer)
        manifest = {
            "run": run.name,
            "step": step,
            "parent": parent,
            "parent_run": None if parent is None else run.adapter_of(parent),
            "base": config.model.base,
            "created_at": datetime.now(UTC).isoformat(),
            "code_version": code_version(),
            "config_digest": digest_settings(config.model_dump(mode="json")),
            "inputs": dict(stage.inputs),
            "files": {file.name: digest_tree(file) for file in sorted(folder.iterdir())},
            "probe": {"token_ids": list(ids), "logprobs": probe_logprobs(self._trainer.model, ids)},
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        stage.publish_folder(folder, adapter_folder(run.name, step))


def base_folder(run: Run) -> Path:
    """Folder of the run's base model on this machine."""
    model = run.config.model
    return resolve_base_model(model.base, model.revision, cache_dir=default_cache_dir())


def _seed(run: Run, step: int) -> int:
    """Seed of one update: a function of the run's seed and the step, so that a rerun repeats it."""
    return int(digest_settings(["update", run.config.seed, step]), 16) % 2**31
