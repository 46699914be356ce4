"""The pipeline as it is deployed: a real server, a real worker, every deployment of prefect.yaml."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import httpx
import mlflow
import pytest

from storage.layout import StageKey
from storage.stages import read_record
from storage.store import Store
from storage.tracking import mlflow_uri
from tests.flows.conftest import ROOT, tiny_document

WORLD = {"name": "tests.flows.worlds:LengthGuess", "args": {"high": 16, "guesses": 2}}


class Prefect:
    """Prefect's server with a process worker, and its API."""

    def __init__(self, home) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.api = httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=60)
        self.environment = {
            **os.environ,
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": str(self.api.base_url).rstrip("/"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_CLI_PROMPT": "false",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "3",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_LOGGING_LEVEL": "WARNING",
            "DO_NOT_TRACK": "1",
            "PYTHONPATH": str(ROOT),
        }
        self.log = (home / "prefect.log").open("w")
        self.processes = [self.start("server", "start", "--host", "127.0.0.1", "--port", str(port))]
        self.wait(lambda: self.healthy(), 180)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def call(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def healthy(self) -> bool:
        try:
            return self.api.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def wait(self, condition, seconds: float):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, "what the test waited for did not come"
            assert all(process.poll() is None for process in self.processes), "a process of Prefect's ended"
            time.sleep(0.5)
        return found

    def ask(self, method: str, path: str, **content) -> httpx.Response:
        """An answer of the API; it says 503 while its database is locked, and is asked again."""

        def answered():
            answer = self.api.request(method, path, **content)
            return None if answer.status_code == 503 else answer

        return self.wait(answered, 60).raise_for_status()

    def deployment(self, name: str) -> dict:
        return self.ask("GET", f"/deployments/name/{name}/{name}").json()

    def finished(self, flow_run: str) -> dict:
        """The flow run, once it has ended."""

        def ended():
            run = self.ask("GET", f"/flow_runs/{flow_run}").json()
            return run if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

        return self.wait(ended, 300)

    def run(self, deployment: dict, parameters: dict) -> dict:
        """Run a deployment; returns the flow run once it has ended."""
        path = f"/deployments/{deployment['id']}/create_flow_run"

        return self.finished(self.ask("POST", path, json={"parameters": parameters}).json()["id"])

    def runs_of(self, deployment: dict) -> list[dict]:
        wanted = {"deployments": {"id": {"any_": [deployment["id"]]}}}
        return self.ask("POST", "/flow_runs/filter", json=wanted).json()

    def close(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.wait(30)


@pytest.fixture(scope="module")
def prefect(tmp_path_factory):
    """All deployments of prefect.yaml on a server, and a worker that runs them."""
    server = Prefect(tmp_path_factory.mktemp("prefect"))
    try:
        server.call("work-pool", "create", "rollmill", "--type", "process")
        server.call("--no-prompt", "deploy", "--all")
        server.processes.append(server.start("worker", "start", "--pool", "rollmill"))
        yield server
    finally:
        server.close()


def test_scheduled_training_and_a_rerun_of_one_stage(prefect, tiny_model, tmp_path):
    store = Store(tmp_path / "store")
    config = tiny_document(tiny_model, store.root, "deployed", environment=WORLD)

    # A schedule, switched off when its first run is on its way.
    train = prefect.deployment("train")
    schedules = f"/deployments/{train['id']}/schedules"
    often = {"interval": 15.0, "anchor_date": datetime.now(UTC).isoformat()}
    wanted = {"schedule": often, "active": True, "parameters": {"config": config}}
    [made] = prefect.ask("POST", schedules, json=[wanted]).json()
    begun = prefect.wait(lambda: [r for r in prefect.runs_of(train) if r["state_type"] != "SCHEDULED"], 200)
    prefect.ask("PATCH", f"{schedules}/{made['id']}", json={"active": False})
    [run] = begun
    assert run["auto_scheduled"]
    run = prefect.finished(run["id"])
    assert run["state_type"] == "COMPLETED", run["state"]

    assert store.adapter_steps("deployed") == [0, 1, 2]
    client = mlflow.MlflowClient(mlflow_uri(store, None))
    recorded = client.get_run(store.existing_run("deployed")["mlflow_run_id"])
    assert recorded.info.status == "FINISHED"
    assert "val/reward" in recorded.data.metrics
    assert {i.dataset.name for i in recorded.inputs.dataset_inputs} == {
        "scenarios/train",
        "scenarios/validation",
    }
    assert [file.path for file in client.list_artifacts(recorded.info.run_id)] == ["rewards.png"]
    for kind, key in (("table", "deployed-metrics"), ("image", "deployed-rewards")):
        artifact = prefect.ask("GET", f"/artifacts/{key}/latest").json()
        assert artifact["type"] == kind

    # One stage by its deployment.
    key = StageKey("deployed", "score_rollouts", 1, "train", "environment")
    first = read_record(store, key)
    before = store.digest("trajectories/run=deployed/step=000001/split=train/data.parquet")
    score = prefect.deployment("score_rollouts")
    parameters = {"run": "deployed", "step": 1, "store": str(store.root)}
    run = prefect.run(score, parameters)
    assert run["state_type"] == "COMPLETED", run["state"]
    assert read_record(store, key).started_at > first.started_at
    assert store.digest("trajectories/run=deployed/step=000001/split=train/data.parquet") == before

    # A stage that cannot be done fails with words that say why.
    run = prefect.run(score, {**parameters, "run": "nobody"})
    assert run["state_type"] == "FAILED"
    assert "There is no run 'nobody'" in run["state"]["message"]


def test_parameters_read_well_in_prefects_page(prefect):
    for name in (
        "train",
        "resume",
        "rerun",
        "retrain",
        "collect_rollouts",
        "score_rollouts",
        "update_policy",
    ):
        deployment = prefect.deployment(name)
        assert deployment["description"]
        assert "rollmill" in deployment["tags"]
        for parameter, schema in deployment["parameter_openapi_schema"]["properties"].items():
            assert schema.get("description"), f"{name}: {parameter} is not described"
    settings = prefect.deployment("train")["parameter_openapi_schema"]["definitions"]["RolloutSettings"]
    assert settings["properties"]["temperature"]["description"].startswith("Sampling temperature")


def test_nightly_retraining_waits_to_be_switched_on(prefect):
    deployment = prefect.deployment("retrain")
    [schedule] = deployment["schedules"]
    assert (schedule["schedule"]["cron"], schedule["schedule"]["timezone"]) == ("0 3 * * *", "Europe/Berlin")
    assert not schedule["active"]
    assert json.dumps(deployment["parameters"]["config"])
    for name in ("train", "collect_rollouts", "update_policy", "retrain"):
        assert prefect.deployment(name)["global_concurrency_limit"]["limit"] == 1
