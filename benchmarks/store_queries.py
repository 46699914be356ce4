"""Writes and reads a synthetic store, and asks it five shipped questions.

    python benchmarks/store_queries.py 10000 100000 1000000

Trajectories hold 256 tokens in the mean, two turns and four messages; a step has 10,000 of them, so a larger
store has more steps. Beside it the same rows as one JSON string each in Parquet, as ART stores them. The
process's own disk cache is warm: what is measured is the format and the code, not the disk.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if not __package__:  # run as a file: its folder comes first then, and hides the package `storage` behind it
    sys.path[0] = str(Path(__file__).parents[1])

from storage.catalog import connect
from storage.questions import ask, find_question
from storage.schemas import SCORES, TRAJECTORIES
from storage.store import Store, write_parquet

STEP = 10_000  # trajectories
GROUP = 8
QUESTIONS = ("reward_by_step", "stop_reasons", "zero_variance_groups", "truncations", "longest_episodes")
WORDS = ("the", "number", "is", "too", "low", "try", "a", "higher", "one", "between", "now", "guess", "again")


def step_table(step: int, count: int) -> pa.Table:
    """(count) trajectories with lengths drawn from 128 to 384 tokens."""
    draw = np.random.default_rng(step)
    lengths = draw.integers(64, 193, count) * 2
    prompts = lengths // 4
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    half, prompt = np.repeat(lengths // 2, lengths), np.repeat(prompts, lengths)
    mask = ((position >= prompt) & (position < half)) | (position >= half + 4)
    logprobs = np.where(mask, -draw.exponential(0.6, len(mask)), np.nan).astype(np.float32)
    started = datetime(2026, 1, 1, tzinfo=UTC)

    def lists(values: Any, type_: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(values, type_, from_pandas=True))

    turns = [
        [
            {
                "turn": turn,
                "segment": 0,
                "start": start,
                "end": end,
                "finish_reason": "stop",
                "policy_version": step,
                "seed": turn,
                "reward": None,
                "started_at": started,
                "seconds": 1.0,
            }
            for turn, (start, end) in enumerate([(p, n // 2), (n // 2 + 4, n)])
        ]
        for n, p in zip(lengths.tolist(), prompts.tolist(), strict=True)
    ]
    texts = [" ".join(WORDS[i] for i in row) for row in draw.integers(0, len(WORDS), (count, 60))]
    roles = ("system", "user", "assistant", "tool", "assistant")
    messages = [
        [
            {"role": role, "content": text[n * 40 : n * 40 + 60], "tool_calls": []}
            for n, role in enumerate(roles)
        ]
        for text in texts
    ]
    number = np.arange(count)
    columns = {
        "trajectory_id": [f"{step:08x}{n:024x}" for n in number],
        "group_id": [f"{step:08x}{n // GROUP:024x}" for n in number],
        "scenario_id": [f"scenario-{n // GROUP}" for n in number],
        "group_no": np.zeros(count, np.int32),
        "sample_no": (number % GROUP).astype(np.int32),
        "seat": [None] * count,
        "match_id": [None] * count,
        "policy_version": np.full(count, step, np.int32),
        "temperature": np.ones(count),
        "messages": messages,
        "token_ids": lists(draw.zipf(1.3, len(mask)) % 49152, pa.int32()),
        "mask": lists(mask, pa.bool_()),
        "logprobs": lists(logprobs, pa.float32()),
        "segment_starts": [[0]] * count,
        "turns": turns,
        "prompt_digest": [f"{n // GROUP:064x}" for n in number],
        "stop_reason": np.where(draw.random(count) < 0.9, "completed", "max_turns"),
        "error": [None] * count,
        "environment_reward": draw.choice([0.0, 0.5, 1.0], count),
        "metrics": [[("guesses", 2.0)]] * count,
        "metadata": ["{}"] * count,
        "started_at": [started] * count,
        "seconds": draw.exponential(5.0, count),
    }
    schema = TRAJECTORIES.schema
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, schema.field(name).type)
        for name, values in columns.items()
    ]
    return pa.table(arrays, schema=schema)


def score_table(table: pa.Table) -> pa.Table:
    count = table.num_rows
    arrays = [
        table["trajectory_id"].combine_chunks(),
        pa.array(["digest"] * count),
        table["environment_reward"].combine_chunks(),
        pa.array([[]] * count, SCORES.schema.field("components").type),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
        pa.array([[]] * count, SCORES.schema.field("judge_call_ids").type),
    ]
    return pa.table(arrays, schema=SCORES.schema)


def steps(count: int) -> Iterator[tuple[int, int]]:
    for step in range(0, -(-count // STEP)):
        yield step, min(STEP, count - step * STEP)


def fill(store: Store, count: int) -> tuple[float, int]:
    """Seconds spent in publishing trajectories, and tokens; making them up is not counted."""
    store.write_run("bench", {"run": "bench", "scorer": "environment", "config": {}})
    seconds, tokens = 0.0, 0
    for step, rows in steps(count):
        table = step_table(step, rows)
        where = {"run": "bench", "step": step, "split": "train"}
        seconds += timed(lambda t=table, w=where: store.publish_table(TRAJECTORIES, t, **w))[0]
        store.publish_table(SCORES, score_table(table), **where, scorer="environment")
        tokens += pa.compute.sum(pa.compute.list_value_length(table["token_ids"])).as_py()
    return seconds, tokens


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    clock = time.perf_counter()
    result = work()
    return time.perf_counter() - clock, result


def read_all(store: Store) -> int:
    return sum(
        pq.ParquetFile(path).read().num_rows
        for path in sorted((store.root / "trajectories").rglob("*.parquet"))
    )


def report(count: int, folder: Path) -> None:
    store = Store(folder / str(count))
    written, tokens = fill(store, count)
    size = sum(path.stat().st_size for path in (store.root / "trajectories").rglob("*.parquet"))
    read, _ = timed(lambda: read_all(store))
    print(f"\n{count:,} trajectories, {tokens:,} tokens in {-(-count // STEP)} files")
    print(f"  bytes a token      {size / tokens:8.2f}")
    print(f"  rows/s written     {count / written:8,.0f}   (fsync included)")
    print(f"  rows/s read        {count / read:8,.0f}   (all columns, to Arrow)")
    with connect(store.root) as connection:
        for name in QUESTIONS:
            best = min(
                timed(lambda n=name: ask(connection, find_question(n), run="bench"))[0] for _ in range(3)
            )
            print(f"  {name:<24}{best:8.3f} s")
        last = (count - 1) // STEP
        query = "SELECT avg(reward), sum(sampled_tokens) FROM rewards WHERE run = 'bench' AND step = ?"
        best = min(timed(lambda: connection.execute(query, [last]).fetchall())[0] for _ in range(3))
        plan = connection.execute(f"EXPLAIN ANALYZE {query}", [last]).fetchall()[0][1]
        scanned = re.findall(r"Scanning Files: (\d+/\d+)", plan) or ["1/1"]
        print(f"  one step of all         {best:8.3f} s, files scanned: {', '.join(scanned)}")
    compare_with_json(store, folder)


def compare_with_json(store: Store, folder: Path) -> None:
    """The same rows as one JSON string each: what reading and one question cost then."""
    table = store.read(TRAJECTORIES, run="bench", step=0, split="train")
    columns = [
        "trajectory_id",
        "messages",
        "token_ids",
        "mask",
        "logprobs",
        "stop_reason",
        "environment_reward",
    ]
    payloads = [json.dumps(row) for row in table.select(columns).to_pylist()]
    path = folder / "payloads.parquet"
    write_parquet(pa.table({"payload": payloads}), path)

    def parse() -> float:
        rows = [json.loads(text) for text in pq.ParquetFile(path).read()["payload"].to_pylist()]
        return sum(row["environment_reward"] for row in rows) / len(rows)

    def columnar() -> float:
        return pa.compute.mean(
            store.read(TRAJECTORIES, run="bench", step=0, split="train", columns=["environment_reward"])[
                "environment_reward"
            ]
        ).as_py()

    def everything() -> pa.Table:
        return store.read(TRAJECTORIES, run="bench", step=0, split="train", columns=columns)

    def objects() -> list[dict[str, Any]]:
        return everything().to_pylist()

    size = store.files.path("trajectories/run=bench/step=000000/split=train/data.parquet").stat().st_size
    as_json, value = min(timed(parse) for _ in range(3))
    whole = min(timed(everything)[0] for _ in range(3))
    as_objects = timed(objects)[0]
    asked, same = min(timed(columnar) for _ in range(3))
    assert abs(value - same) < 1e-9
    print(f"  as JSON payload strings (ART's way), the same rows of step 0 take {as_json:.2f} s to parse:")
    print(f"    size             {path.stat().st_size / size:8.1f} times ours")
    print(f"    reading all      {as_json / whole:8.1f} times as long as ours to Arrow ({whole:.3f} s)")
    print(f"                     {as_json / as_objects:8.1f} times as long as to dicts ({as_objects:.2f} s)")
    print(f"    the mean reward  {as_json / asked:8.1f} times as long ({asked:.4f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counts", nargs="*", type=int, default=[10_000], help="trajectories of each store")
    parser.add_argument("--folder", type=Path, help="where to make the stores; a temporary one by default")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rollmill-bench-"))
    try:
        for count in options.counts:
            report(count, folder)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
