"""What stands behind an adapter: its files, what they were made from, and whether all is as recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from storage.catalog import connect
from storage.files import digest_tree
from storage.layout import adapter_folder
from storage.status import stage_records
from storage.store import Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROLLOUTS = """
    SELECT
        count(*) AS rollouts,
        count(*) FILTER (failed) AS failed,
        count(DISTINCT group_id) AS groups,
        count(DISTINCT scenario_id) AS scenarios,
        sum(sampled_tokens)::BIGINT AS sampled_tokens,
        list(DISTINCT policy_version) AS policy_versions
    FROM rollouts
    WHERE run = $run AND step = $step AND split = 'train'
"""
SCORERS = """
    SELECT scorer, list(DISTINCT scorer_digest) AS digests, count(reward) AS scored, avg(reward) AS reward
    FROM scores
    WHERE run = $run AND step = $step AND split = 'train'
    GROUP BY scorer
    ORDER BY scorer
"""
JUDGES = """
    SELECT scorer, model, prompt_version, count(*) AS calls, sum(cost) AS cost
    FROM judge_calls
    WHERE run = $run AND step = $step AND split = 'train'
    GROUP BY scorer, model, prompt_version
    ORDER BY scorer, model, prompt_version
"""


@dataclass(frozen=True)
class Evidence:
    """A file or folder behind an adapter: its digest as recorded, and as it is now (None when it is gone)."""

    path: str
    used_as: str
    recorded: str
    found: str | None

    @property
    def verdict(self) -> str:
        if self.found is None:
            return "missing"
        return "as recorded" if self.found == self.recorded else "CHANGED"


@dataclass(frozen=True)
class Explanation:
    """Where an adapter comes from. `parents` goes back to step 0, the nearest first.

    `rollouts`, `scorers` and `judges` are empty where there are none, or where their file is broken.
    """

    run: Mapping[str, Any]
    manifest: Mapping[str, Any]
    evidence: tuple[Evidence, ...]
    rollouts: Mapping[str, Any]
    scorers: tuple[Mapping[str, Any], ...]
    judges: tuple[Mapping[str, Any], ...]
    parents: tuple[Mapping[str, Any], ...]

    @property
    def mismatches(self) -> list[Evidence]:
        return [item for item in self.evidence if item.found != item.recorded]


def explain_adapter(store: Store, run: str, step: int) -> Explanation:
    """Explain the adapter of `step`, which the update of step - 1 made; digests are computed anew.

    Raises:
        StoreError: there is no such run or adapter.
    """
    description, manifest = store.existing_run(run), store.read_manifest(run, step)
    where = {"run": run, "step": step - 1}
    with connect(store.root) as connection:
        rollouts, scorers, judges = (_rows(connection, sql, where) for sql in (ROLLOUTS, SCORERS, JUDGES))
    return Explanation(
        run=description,
        manifest=manifest,
        evidence=tuple(_evidence(store, run, step, manifest)),
        rollouts=rollouts[0] if rollouts else {},
        scorers=tuple(scorers),
        judges=tuple(judges),
        parents=tuple(_parents(store, run, manifest)),
    )


def _rows(connection: DuckDBPyConnection, sql: str, where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a query; none where a file is broken, which the evidence says."""
    import duckdb

    try:
        return connection.sql(sql, params=dict(where)).to_arrow_table().to_pylist()
    except duckdb.Error:
        return []


def _evidence(store: Store, run: str, step: int, manifest: Mapping[str, Any]) -> list[Evidence]:
    folder, relative = store.adapter(run, step), adapter_folder(run, step)
    evidence = []
    for name, recorded in manifest["files"].items():
        file = folder / name
        found = digest_tree(file) if file.exists() else None
        evidence.append(Evidence(f"{relative}/{name}", "part of the adapter", recorded, found))
    producers = {
        path: record
        for origin in _line_of_descent(store, run)
        for _, record in stage_records(store, origin)
        for path in record.outputs
    }
    if relative in producers:
        whole = producers[relative].outputs[relative]
        evidence.append(Evidence(relative, "the adapter", whole, store.digest(relative)))
    # What the update read, and what that in turn was made from.
    read = {path: (recorded, "read by the update") for path, recorded in manifest["inputs"].items()}
    for path in manifest["inputs"]:
        if path in producers and not path.startswith("adapters/"):
            record = producers[path]
            for source, recorded in record.inputs.items():
                read.setdefault(source, (recorded, f"read by {record.stage}"))
    evidence += [
        Evidence(path, used_as, recorded, store.digest(path)) for path, (recorded, used_as) in read.items()
    ]
    return evidence


def _line_of_descent(store: Store, run: str) -> list[str]:
    """The run and what it was forked from, and so on."""
    line = [run]
    while (parent := (store.read_run(line[-1]) or {}).get("parent")) is not None:
        line.append(parent["run"])
    return line


def _parents(store: Store, run: str, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Manifests of the adapters that this one goes back to, as far as they are still there."""
    parents: list[Mapping[str, Any]] = []
    while (step := manifest.get("parent")) is not None:
        run = manifest.get("parent_run") or run
        if step not in store.adapter_steps(run):
            break
        manifest = store.read_manifest(run, step)
        parents.append(manifest)
    return parents
