"""What a step costs beside sampling and training: orchestration, storage, gates, metrics, MLflow.

    python -m benchmarks.overhead --rollouts 64 512 4096

A run with a sampler that answers at once and an update that trains nothing, on Prefect's temporary server. A
step's time is that between the starts of two steps, so that nothing which a step does is left out. The first
step is not counted: it imports what the later ones use.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from flows.cli_runs import prepare_prefect

prepare_prefect(verbose=False)  # before Prefect is imported, which reads its settings then

import flows.train  # noqa: E402
from tasks.episodes.episode import Player  # noqa: E402
from tasks.grpo.results import OptimizerStep, TokenStats, UpdateResult  # noqa: E402
from tasks.learner import Learner, base_folder  # noqa: E402
from tasks.models.base import load_tokenizer  # noqa: E402
from tasks.models.chat import ChatRenderer  # noqa: E402
from tasks.progress import listen  # noqa: E402
from tasks.run import Run  # noqa: E402
from tasks.settings import RunConfig  # noqa: E402
from tests.scripted import ScriptedSampler  # noqa: E402
from tests.tiny import make_tiny_model  # noqa: E402


class Untrained(Learner):
    """Publishes adapters and statistics as the real one does, from an update that changes nothing."""

    def update(self, step, sequences, progress):  # type: ignore[no-untyped-def]
        self._at(step)
        stats = [
            TokenStats(
                trajectory_id=sequence.trajectory_id,
                positions=[sequence.offset + n for n, sampled in enumerate(sequence.mask) if sampled],
                trainer_logprobs=[-0.5] * sum(sequence.mask),
                reference_logprobs=None,
                entropies=[0.0] * sum(sequence.mask),
                ratios=[1.0] * sum(sequence.mask),
                advantages=[0.0] * sum(sequence.mask),
            )
            for sequence in sequences
        ]
        tokens = sum(sum(sequence.mask) for sequence in sequences)
        self._step = step + 1
        row = OptimizerStep(0, 0.0, 0.0, 0.0, None, len(sequences), tokens, tokens, {}, 0.0)
        return UpdateResult([row], stats)


@asynccontextmanager
async def scripted_player(run: Run) -> AsyncIterator[Player]:
    tokenizer = load_tokenizer(base_folder(run), None)
    sampler = ScriptedSampler(tokenizer, lambda prompt, seed: str(seed % 16 + 1))
    yield Player(sampler, ChatRenderer(tokenizer), run.config.inference.max_model_len)


class Clock:
    """A progress listener that notes when steps begin, and how long each piece of work takes."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.pieces: dict[str, list[float]] = {}

    def begin_step(self, step: int, steps: int) -> None:
        self.steps.append(time.perf_counter())

    def begin(self, what: str, total: int | None) -> None:
        self._what, self._begun = what, time.perf_counter()

    def advance(self, done: int, note: str) -> None:
        pass

    def end(self) -> None:
        self.pieces.setdefault(self._what, []).append(time.perf_counter() - self._begun)


def measure(model: Path, rollouts: int, steps: int) -> tuple[float, dict[str, float]]:
    """Median seconds of a step with so many rollouts, in groups of 8, and of each piece of it."""
    with tempfile.TemporaryDirectory() as store:
        config = RunConfig.model_validate(
            {
                "name": "overhead",
                "store": store,
                "steps": steps,
                "model": {"base": str(model), "lora": {"rank": 4}},
                "environment": {"name": "tasks.environments.guess_number:GuessNumber"},
                "scenarios": {"train": 12, "validation": 4},
                "rollouts": {"groups_per_step": rollouts // 8, "rollouts_per_group": 8, "max_turns": 4},
                "inference": {"engine": "transformers", "max_model_len": 1024},
                "validation": {"every": None},
            }
        )
        clock = Clock()
        with listen(clock):
            asyncio.run(flows.train.train(config))
    seconds = [after - before for before, after in zip(clock.steps[1:], clock.steps[2:], strict=False)]
    pieces = {what: statistics.median(times[1:]) for what, times in clock.pieces.items() if len(times) > 2}
    return statistics.median(seconds), pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    flows.train.open_player = scripted_player  # type: ignore[assignment]
    flows.train.Learner = Untrained  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder) / "model")
        first: float | None = None
        for rollouts in arguments.rollouts:
            seconds, pieces = measure(model, rollouts, arguments.steps)
            each = seconds / rollouts
            first = first or each
            print(
                f"{rollouts:6d} rollouts: {seconds:7.2f} s a step, {1000 * each:6.2f} ms a rollout "
                f"({each / first:.2f} of the first row's); "
                + ", ".join(f"{what} {value:.2f} s" for what, value in pieces.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
