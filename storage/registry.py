"""Promoted adapters: versions of a registered model in MLflow, of which one has the alias `champion`.

A version says by its tags which run and step of which store it is; its artifacts are a copy of the adapter,
so that MLflow alone is enough to fetch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from storage.errors import StoreError
from storage.layout import adapter_folder, check_name
from storage.store import Store
from storage.tracking import mlflow_uri

ALIAS = "champion"
NOT_SERVED = "optimizer.safetensors"  # state of the training, not of the policy


@dataclass(frozen=True)
class Champion:
    """The version of a registered model that has the alias, and the adapter that it is."""

    model: str
    version: str
    run: str
    step: int
    store: str


class Registry:
    """One registered model of the MLflow where a store's runs are recorded."""

    def __init__(self, store: Store, configured_uri: str | None, model: str) -> None:
        self._store, self._model = store, check_name("model", model)
        self._uri = mlflow_uri(store, configured_uri)

    def champion(self) -> Champion | None:
        """What is promoted now, or None. Raises StoreError when MLflow does not answer, or when the alias is
        on a version that Rollmill did not make."""
        version = self._version_with_alias()
        return None if version is None else self._champion(version)

    def promote(self, run: str, step: int, reason: str) -> Champion:
        """Give the alias to an adapter; a version is made of it unless it has one, as after a roll-back.

        Raises:
            StoreError: there is no such adapter, or MLflow refuses.
        """
        folder = self._store.adapter(run, step)
        run_id = self._store.existing_run(run)["mlflow_run_id"]
        if run_id is None:
            raise StoreError(f"Run {run} was never recorded in MLflow, so that it cannot be promoted there.")
        with _mlflow(self._uri) as client:
            tags = {"rollmill.run": run, "rollmill.step": str(step), "rollmill.store": str(self._store.root)}
            version = next(
                (v for v in self._versions(client) if tags.items() <= dict(v.tags).items()),
                None,
            )
            if version is None:
                where = adapter_folder(run, step)
                for file in sorted(folder.iterdir()):
                    if file.name != NOT_SERVED:
                        client.log_artifact(run_id, str(file), where)
                source = f"{client.get_run(run_id).info.artifact_uri}/{where}"
                version = client.create_model_version(
                    self._model, source, run_id=run_id, tags=tags, description=reason
                )
            client.set_registered_model_alias(self._model, ALIAS, version.version)
        return self._champion(version)

    def _versions(self, client: Any) -> list[Any]:
        from mlflow.exceptions import MlflowException

        try:
            client.get_registered_model(self._model)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            client.create_registered_model(self._model)
        return list(client.search_model_versions(f"name = '{self._model}'"))

    def _version_with_alias(self) -> Any:
        from mlflow.exceptions import MlflowException

        with _mlflow(self._uri) as client:
            try:
                return client.get_model_version_by_alias(self._model, ALIAS)
            except MlflowException as error:
                # MLflow says "invalid" of an alias that a model does not have.
                if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    return None
                raise

    def _champion(self, version: Any) -> Champion:
        tags = dict(version.tags)
        try:
            run, step, store = (tags[f"rollmill.{name}"] for name in ("run", "step", "store"))
        except KeyError as error:
            raise StoreError(
                f"Version {version.version} of model {self._model} in MLflow has the alias {ALIAS}, but no "
                f"tag {error}: Rollmill did not register it. Give the alias to a version that it did."
            ) from None
        return Champion(self._model, str(version.version), run, int(step), store)


@contextmanager
def _mlflow(uri: str) -> Iterator[Any]:
    """MLflow's client, whose errors become StoreError."""
    import mlflow  # eight seconds; not before it is needed
    from mlflow.exceptions import MlflowException

    try:
        yield mlflow.MlflowClient(uri, registry_uri=uri)
    except MlflowException as error:
        raise StoreError(f"MLflow's registry at {uri} refused: {error}") from error


def promoted_adapters(store: Store) -> set[tuple[str, int]]:
    """Champions among a store's adapters, as (run, step), of every model that its runs name.

    Raises:
        StoreError: MLflow does not answer; what is promoted is not known then.
    """
    found = set()
    for uri, model in sorted(set(_models(store)), key=str):
        champion = Registry(store, uri, model).champion()
        if champion is not None and champion.store == str(store.root):
            found.add((champion.run, champion.step))
    return found


def _models(store: Store) -> Iterator[tuple[str | None, str]]:
    for run in store.run_names():
        description = store.existing_run(run)
        if description.get("mlflow_run_id") is not None:
            tracking = description["config"]["tracking"]
            yield tracking["mlflow_uri"], tracking.get("registered_model") or run
