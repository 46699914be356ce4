"""Data gates: what must be true of stored rollouts and scores before an update is made from them.

Each gate is a SQL file that selects the rows which violate it, so no row is the good answer. Its first line
says what must hold; it may use the parameters `$run` and `$step`, whose rollouts are looked at, and `$scorer`
and `$scored_by`, whose scores of them are. All look at the train split.
"""

from __future__ import annotations

import re
from pathlib import Path

from storage.catalog import connect
from storage.errors import StoreError
from storage.store import Store

GATE_FILES = Path(__file__).parent / "gates"
VIEWS = ("runs", "trajectories", "rollouts", "turns", "tokens", "scores", "rewards")  # all that gates use
SHOWN = 3  # offending rows in the error


def gate_names() -> list[str]:
    return sorted(path.stem for path in GATE_FILES.glob("*.sql"))


def check_gates(store: Store, run: str, step: int, scorer: str, *, scored_by: str) -> None:
    """Check the rollouts of a step of `run`, and their scores by `scorer` that the run `scored_by` holds.

    Raises:
        StoreError: a gate is violated; it names the gate, how many rows violate it, and the first of them.
    """
    values = {"run": run, "step": step, "scorer": scorer, "scored_by": scored_by}
    with connect(store.root, step=step, views=VIEWS) as connection:
        for name in gate_names():
            sql = (GATE_FILES / f"{name}.sql").read_text(encoding="utf-8")
            used = {key: value for key, value in values.items() if re.search(rf"\${key}\b", sql)}
            offending = connection.sql(sql, params=used).to_arrow_table()
            if offending.num_rows:
                rule = sql.splitlines()[0].removeprefix("--").strip()
                rows = "\n".join(f"  {row}" for row in offending.slice(0, SHOWN).to_pylist())
                raise StoreError(
                    f"Step {step} of run {run} does not pass the data gate `{name}` ({rule}) with "
                    f"{offending.num_rows} rows, the first of them:\n{rows}\nNothing is trained on it. "
                    "Run the stage again that published these rows."
                )
