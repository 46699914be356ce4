"""A dated run that goes on from the champion with fresh scenarios, as `flows/retrain.py` schedules it."""

from __future__ import annotations

from datetime import date

from storage.errors import StoreError
from storage.registry import Champion
from storage.store import Store
from tasks.fork import fork_run
from tasks.run import Run
from tasks.settings import RunConfig


def registered_model(config: RunConfig) -> str:
    return config.tracking.registered_model or config.name


def begin_retraining(config: RunConfig, day: date, updates: int, champion: Champion | None) -> Run:
    """The run of that day: a fork of the champion, or a run from the base model where there is none yet.

    Begun before, it is gone on with, whoever is the champion now.

    Raises:
        StoreError: the champion is an adapter of another store.
        ConfigError: the champion's model is not the config's.
    """
    store = Store(config.store)
    dated = dated_config(config, day)
    stored = store.read_run(dated.name)
    if stored is not None:
        first = Run.load(config.store, dated.name).first_step
        return Run.create_or_resume(dated.model_copy(update={"steps": first + updates}))
    if champion is None:
        return Run.create_or_resume(dated.model_copy(update={"steps": updates}))
    if champion.store != str(store.root):
        raise StoreError(
            f"The champion of model {champion.model} lies in the store {champion.store}, not in "
            f"{store.root}: retrain in its store, or promote an adapter of this one."
        )
    parent = Run.load(config.store, champion.run)
    return fork_run(parent, dated.model_copy(update={"steps": champion.step + updates}), champion.step)


def dated_config(config: RunConfig, day: date) -> RunConfig:
    """The config of one day's run: a name and a seed of its own, and the same held-out set as every day.

    `{date}` in the path of a scenario file becomes the day, as in `train: tickets-{date}.jsonl`.
    """
    scenarios = config.scenarios
    train = scenarios.train
    return config.model_copy(
        update={
            "name": f"{config.name}-{day:%Y%m%d}",
            "seed": config.seed + int(f"{day:%Y%m%d}"),
            "scenarios": scenarios.model_copy(
                update={
                    "train": train.replace("{date}", day.isoformat()) if isinstance(train, str) else train,
                    "validation_seed": _fixed_seed(config),
                }
            ),
            "validation": config.validation.model_copy(update={"at_start": True}),
            "tracking": config.tracking.model_copy(update={"registered_model": registered_model(config)}),
        }
    )


def _fixed_seed(config: RunConfig) -> int | None:
    if config.scenarios.source != "environment":
        return config.scenarios.validation_seed  # the file is the same every day
    seed = config.scenarios.validation_seed
    return config.seed if seed is None else seed
