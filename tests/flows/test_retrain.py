"""Retraining by the day: from the champion, on fresh scenarios, through the gate."""

from __future__ import annotations

import asyncio
from datetime import date

import mlflow
import pytest
from typer.testing import CliRunner

from flows.cli import app
from storage.codec import scenarios_from
from storage.errors import StoreError
from storage.gc import Retention, plan_removals
from storage.registry import Registry, promoted_adapters
from storage.schemas import SCENARIOS
from storage.store import Store
from tasks.run import Run
from tasks.settings import GateSettings, RunConfig
from tests.flows.conftest import tiny_document

WORLD = {"name": "tests.flows.worlds:LengthGuess", "args": {"high": 24, "guesses": 2}}
ANY, NONE = GateSettings(margin=-100), GateSettings(margin=100)
DAYS = [date(2026, 12, day) for day in range(1, 5)]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_each_day_goes_on_from_the_champion(tiny_model, prefect_server, tmp_path):
    from flows.retrain import backfill, retrain

    config = RunConfig.model_validate(
        tiny_document(
            tiny_model,
            tmp_path / "store",
            "nightly",
            environment=WORLD,
            scenarios={"train": 12, "validation": 6},
        )
    )
    store = Store(tmp_path / "store")

    # There is no champion yet: the first day begins with the base model.
    [first] = asyncio.run(backfill(config, [DAYS[0]], updates=1, gate=ANY))
    assert first.startswith("Step 1 of run nightly-20261201 is promoted to champion as version 1: better")
    # The second day goes on from it, on other scenarios, and is not good enough.
    second = asyncio.run(retrain(config, updates=1, day=DAYS[1], gate=NONE))
    assert second.startswith("Step 2 of run nightly-20261202 is not promoted: not better than the champion")
    assert Run.load(str(store.root), "nightly-20261202").parent.run == "nightly-20261201"
    # So the third goes on from the first day, too, and is promoted.
    third = asyncio.run(retrain(config, updates=1, day=DAYS[2], gate=ANY))
    assert "step 1" not in third
    assert Run.load(str(store.root), "nightly-20261203").parent.step == 1
    # Started again, a day's run is not done twice.
    again = asyncio.run(retrain(config, updates=1, day=DAYS[2], gate=ANY))
    assert again.endswith("it is the champion already.")
    stale = asyncio.run(retrain(config, updates=1, day=DAYS[1], gate=ANY))
    assert "the champion has changed since" in stale

    def payloads(run: str, split: str) -> list[str]:
        return sorted(str(s.payload) for s in scenarios_from(store.read(SCENARIOS, run=run, split=split)))

    runs = [f"nightly-{day:%Y%m%d}" for day in DAYS[:3]]
    assert len({str(payloads(run, "validation")) for run in runs}) == 1
    assert payloads(runs[0], "train") != payloads(runs[1], "train")
    for run in runs:
        assert not set(payloads(run, "train")) & set(payloads(run, "validation"))

    # The registry: the alias, what the version says of itself, and its files.
    registry = Registry(store, None, "nightly")
    now = registry.champion()
    assert (now.version, now.run, now.step) == ("2", "nightly-20261203", 2)
    uri = f"sqlite:///{store.root / 'mlflow' / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    fetched = mlflow.artifacts.download_artifacts("models:/nightly@champion", dst_path=str(tmp_path / "got"))
    names = {path.name for path in (tmp_path / "got").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "manifest.json"} <= names, fetched
    assert "optimizer.safetensors" not in names

    # Roll back: the first version again, not a third one.
    back = invoke("promote", "nightly-20261201", "--step", "1", "--store", str(store.root))
    assert back.startswith("Version 1 of model nightly is the champion")
    assert "Version 1 of model nightly: step 1 of nightly-20261201" in invoke(
        "champion", "nightly-20261201", "--store", str(store.root)
    )

    # Whatever is promoted is kept.
    assert promoted_adapters(store) == {("nightly-20261201", 1)}
    policy = Retention(last_adapters=2)
    assert "adapters/run=nightly-20261201/step=000001" not in [
        removal.path for removal in plan_removals(store, policy, promoted_adapters(store))
    ]


def test_alias_on_a_foreign_version_is_refused(tmp_path):
    store = Store(tmp_path / "store")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    client.create_registered_model("m")
    version = client.create_model_version("m", str(tmp_path))
    registry = Registry(store, f"sqlite:///{tmp_path / 'mlflow.db'}", "m")
    assert registry.champion() is None
    client.set_registered_model_alias("m", "champion", version.version)
    with pytest.raises(StoreError, match="Rollmill did not register it"):
        registry.champion()
