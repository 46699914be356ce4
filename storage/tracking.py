"""MLflow: one MLflow run for each Rollmill run, found again by its id. Numbers come from the store's SQL.

MLflow looks on; it decides nothing. What fails here is reported once and training goes on.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from storage.catalog import connect
from storage.layout import SPLITS, data_file
from storage.schemas import SCENARIOS
from storage.store import Store

logger = logging.getLogger(__name__)

PARAM_LENGTH = 6000  # characters; MLflow refuses longer values
METRICS_A_CALL = 1000  # MLflow's limit


def metric_name(name: str) -> str:
    """`name` with what MLflow refuses replaced: `pass@1` becomes `pass_at_1`. At most 250 characters."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))[:250]


def step_metrics(store: Store, run: str, step: int) -> dict[str, float]:
    """Every metric of a step, computed from stored rows by the view `metrics`."""
    with connect(store.root, step=step) as connection:
        rows = connection.execute(
            "SELECT name, value FROM metrics WHERE run = ? AND step = ? AND value IS NOT NULL", [run, step]
        ).fetchall()
    return dict(rows)


class Tracker:
    """Writes a run's parameters once and its metrics by step."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._config = store.existing_run(run)["config"]
        self.uri = mlflow_uri(store, self._config["tracking"]["mlflow_uri"])
        self._broken = False

    def start(self) -> None:
        """Create the MLflow run with the configuration as its parameters, or go on with the one there is."""
        self._guard("start the run", self._start)

    def log_step(self, step: int) -> None:
        """Send the metrics of a step. Sending them again changes nothing but their time."""
        self._guard(f"log the metrics of step {step}", lambda: self._log_step(step))

    def log_figure(self, figure: Any, name: str) -> None:
        """Keep a matplotlib figure as an artifact of the run."""
        self._guard(f"keep {name}", lambda: self._client().log_figure(self._run_id(), figure, name))

    def finish(self, status: str = "FINISHED") -> None:
        self._guard("end the run", lambda: self._client().set_terminated(self._run_id(), status))

    def _start(self) -> None:
        description = self._store.existing_run(self._run)
        client = self._client()
        if description.get("mlflow_run_id"):
            client.update_run(description["mlflow_run_id"], status="RUNNING")
            return
        run = client.create_run(
            self._experiment_id(client), run_name=self._run, tags={"rollmill.store": str(self._store.root)}
        )
        for name, value in flatten(self._config).items():
            client.log_param(run.info.run_id, metric_name(name), str(value)[:PARAM_LENGTH])
        client.log_inputs(run.info.run_id, self._scenario_inputs())
        self._store.write_run(self._run, {**description, "mlflow_run_id": run.info.run_id})

    def _scenario_inputs(self) -> list[Any]:
        """The run's scenarios as MLflow's dataset inputs, by the digests of their files."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for split in SPLITS:
            path = data_file(SCENARIOS, run=self._run, split=split)
            digest = self._store.digest(path)
            if digest is not None:  # a fork plays its parent's
                source = json.dumps({"uri": f"{self._store.root}/{path}"})
                dataset = Dataset(f"scenarios/{split}", digest.split(":")[1][:36], "local", source)
                inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", split)]))
        return inputs

    def _log_step(self, step: int) -> None:
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        found = step_metrics(self._store, self._run, step)
        metrics = [Metric(metric_name(name), value, now, step) for name, value in found.items()]
        for start in range(0, len(metrics), METRICS_A_CALL):
            self._client().log_batch(self._run_id(), metrics[start : start + METRICS_A_CALL])

    def _client(self) -> Any:
        import mlflow  # eight seconds; not before it is needed

        return mlflow.MlflowClient(self.uri)

    def _experiment_id(self, client: Any) -> str:
        name = self._config["tracking"]["experiment"]
        found = client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        artifacts = (self._store.root / "mlflow" / "artifacts").as_uri() if self._is_local else None
        return client.create_experiment(name, artifact_location=artifacts)

    @property
    def _is_local(self) -> bool:
        return self._config["tracking"]["mlflow_uri"] is None

    def _run_id(self) -> str:
        return self._store.existing_run(self._run)["mlflow_run_id"]

    def _guard(self, what: str, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:  # a metrics server must not end a training run
            if not self._broken:
                logger.warning("MLflow at %s could not %s: %s. Training goes on.", self.uri, what, error)
            self._broken = True


def mlflow_uri(store: Store, configured: str | None) -> str:
    """Where MLflow records: the server that a config names, or a SQLite file inside the store."""
    if configured is not None:
        return configured
    folder = store.root / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names: {"model": {"base": "x"}} becomes {"model.base": "x"}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
