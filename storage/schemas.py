"""The Arrow schema of every dataset: the one truth about columns.

A dataset's partition columns (run, step, split, scorer) stand in its path, as Hive has it, and not in the
file, so that every Parquet reader gives each of them once. Every column states its meaning, its unit and
when it is null; `docs/schema.md` is generated from here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1


def column(name: str, type_: pa.DataType, doc: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=nullable, metadata={"doc": doc})


STRING, TIME = pa.string(), pa.timestamp("us", tz="UTC")
METRICS = pa.map_(pa.string(), pa.float64())

MESSAGE = pa.struct(
    [
        column("role", STRING, "system, user, assistant or tool"),
        column("content", STRING, "text; null where a reply holds only tool calls", nullable=True),
        column("reasoning", STRING, "reasoning text kept apart from the content", nullable=True),
        column(
            "tool_calls",
            pa.list_(pa.struct([("id", STRING), ("name", STRING), ("arguments", STRING)])),
            "calls that this reply makes; arguments as the policy wrote them",
        ),
        column("tool_call_id", STRING, "which call this tool message answers", nullable=True),
        column("name", STRING, "name of the tool or speaker", nullable=True),
    ]
)

TURN = pa.struct(
    [
        column("turn", pa.int32(), "0-based number of the policy's reply"),
        column("segment", pa.int32(), "0-based segment of the token record that holds it"),
        column("start", pa.int32(), "first sampled token, an index into token_ids"),
        column("end", pa.int32(), "one past the last sampled token"),
        column("finish_reason", STRING, "stop or length, as the sampler said"),
        column("policy_version", pa.int32(), "adapter step serving when the request started"),
        column("seed", pa.int64(), "seed of this turn's sampling"),
        column("reward", pa.float64(), "reward that the environment gave for this turn", nullable=True),
        column("started_at", TIME, "when the request was sent"),
        column("seconds", pa.float64(), "seconds until the reply was complete"),
    ]
)


@dataclass(frozen=True)
class Dataset:
    """One kind of file in the store: where it lies, its columns, and what identifies a row in a file."""

    name: str
    doc: str
    partitions: tuple[str, ...]
    key: tuple[str, ...]
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.columns.with_metadata(
            {"rollmill.dataset": self.name, "rollmill.schema_version": str(SCHEMA_VERSION)}
        )


SCENARIOS = Dataset(
    "scenarios",
    "The tasks that a run draws from.",
    ("run", "split"),
    ("scenario_id",),
    pa.schema(
        [
            column("scenario_id", STRING, "unique within the run and split"),
            column("position", pa.int32(), "0-based place in the source; the order that draws refer to"),
            column("payload", STRING, "JSON: what the environment needs to start this scenario"),
            column("metadata", STRING, "JSON: anything else the source said"),
            column("digest", STRING, "SHA-256 of id and payload"),
        ]
    ),
)

TRAJECTORIES = Dataset(
    "trajectories",
    "One row for each episode (of each learner seat): what was said and the exact tokens sampled.",
    ("run", "step", "split"),
    ("trajectory_id",),
    pa.schema(
        [
            column("trajectory_id", STRING, "function of run, step, split, scenario, group_no, sample_no"),
            column("group_id", STRING, "function of run, step, split, scenario, group_no"),
            column("scenario_id", STRING, "the scenario that was played"),
            column("group_no", pa.int32(), "which group of this step that plays the scenario, from 0"),
            column("sample_no", pa.int32(), "which member of the group, from 0"),
            column("seat", STRING, "the learner's seat in a match; null outside matches", nullable=True),
            column("match_id", STRING, "the match this seat belongs to; null outside matches", nullable=True),
            column("policy_version", pa.int32(), "adapter step serving when the first request started"),
            column("temperature", pa.float64(), "sampling temperature"),
            column("messages", pa.list_(MESSAGE), "the conversation, in order"),
            column("token_ids", pa.list_(pa.int32()), "tokens of all segments, end to end"),
            column("mask", pa.list_(pa.bool_()), "true where the policy sampled the token"),
            column(
                "logprobs",
                pa.list_(pa.float32()),
                "sampler's log-probability (nats, at the sampling temperature); null where mask is false",
            ),
            column("segment_starts", pa.list_(pa.int32()), "index in token_ids where each segment begins"),
            column("turns", pa.list_(TURN), "the policy's replies"),
            column("prompt_digest", STRING, "SHA-256 of the first prompt's ids; equal within a group"),
            column("stop_reason", STRING, "why the episode ended"),
            column("error", STRING, "what went wrong; null where nothing did", nullable=True),
            column(
                "environment_reward",
                pa.float64(),
                "sum of the rewards that the environment gave; null where it gave none",
                nullable=True,
            ),
            column("metrics", METRICS, "numbers that the environment reported"),
            column("metadata", STRING, "JSON: anything else"),
            column("started_at", TIME, "when the episode began"),
            column("seconds", pa.float64(), "wall-clock seconds of the episode"),
        ]
    ),
)

SCORES = Dataset(
    "scores",
    "What one scorer says of each trajectory of a step.",
    ("run", "step", "split", "scorer"),
    ("trajectory_id",),
    pa.schema(
        [
            column("trajectory_id", STRING, "the trajectory that was scored"),
            column("scorer_digest", STRING, "SHA-256 of the scorer's name, arguments and source"),
            column(
                "reward", pa.float64(), "the reward; null when unscored, and 0.0 is a reward", nullable=True
            ),
            column("components", METRICS, "parts of the reward, and other numbers the scorer reported"),
            column("explanation", STRING, "why, in the scorer's words", nullable=True),
            column("error", STRING, "why there is no reward; null where there is one", nullable=True),
            column("judge_call_ids", pa.list_(STRING), "judge calls behind this score"),
        ]
    ),
)

JUDGE_CALLS = Dataset(
    "judge_calls",
    "Every request to a judge, with its raw reply.",
    ("run", "step", "split", "scorer"),
    ("judge_call_id",),
    pa.schema(
        [
            column("judge_call_id", STRING, "function of model, prompt version, transcript and attempt"),
            column("model", STRING, "judge model"),
            column("prompt_version", STRING, "digest of the prompt template and rubric"),
            column("attempt", pa.int32(), "0 for the first try"),
            column("group_id", STRING, "group that was judged; null for a single trajectory", nullable=True),
            column("trajectory_ids", pa.list_(STRING), "trajectories judged, in the order shown"),
            column("request", STRING, "JSON: messages as sent"),
            column("reply", STRING, "raw text; null where none came", nullable=True),
            column("error", STRING, "why the reply was not used; null where it was", nullable=True),
            column("cached", pa.bool_(), "true where an earlier identical call answered"),
            column("prompt_tokens", pa.int64(), "as the server reported; null if it did not", nullable=True),
            column(
                "completion_tokens", pa.int64(), "as the server reported; null if it did not", nullable=True
            ),
            column(
                "cost", pa.float64(), "in the currency of the configured prices; null without", nullable=True
            ),
            column("started_at", TIME, "when the request was sent"),
            column("seconds", pa.float64(), "seconds until the reply or the error"),
        ]
    ),
)

TOKEN_STATS = Dataset(
    "token_stats",
    "What the trainer computed for each sampled token before the first optimiser step.",
    ("run", "step"),
    ("trajectory_id",),
    pa.schema(
        [
            column("trajectory_id", STRING, "a trajectory of this step's train split"),
            column("positions", pa.list_(pa.int32()), "indexes into token_ids: where mask is true, in order"),
            column(
                "trainer_logprobs",
                pa.list_(pa.float32()),
                "log-probability (nats) under the policy that the update starts from, same temperature",
            ),
            column(
                "reference_logprobs",
                pa.list_(pa.float32()),
                "the same under the reference policy; null where no KL term asked for it",
                nullable=True,
            ),
            column("entropies", pa.list_(pa.float32()), "entropy (nats) of the policy at each position"),
            column("ratios", pa.list_(pa.float32()), "exp(trainer - sampler logprob)"),
            column("advantages", pa.list_(pa.float32()), "advantage that each token carried"),
        ]
    ),
)

UPDATES = Dataset(
    "updates",
    "What the update did, one row for each optimiser step.",
    ("run", "step"),
    ("optimizer_step",),
    pa.schema(
        [
            column("optimizer_step", pa.int32(), "0-based within this update"),
            column("loss", pa.float64(), "value of the loss; null where the step was skipped", nullable=True),
            column("grad_norm", pa.float64(), "norm before clipping; null where skipped", nullable=True),
            column("learning_rate", pa.float64(), "learning rate of this optimiser step"),
            column("skipped", STRING, "why no step was taken; null where one was", nullable=True),
            column("trajectories", pa.int32(), "trajectories in the loss"),
            column("tokens", pa.int64(), "sampled tokens in the loss"),
            column("forward_tokens", pa.int64(), "tokens that went through the model, prompts included"),
            column("metrics", METRICS, "other numbers of this step: clip ratios, KL, entropy, …"),
            column("seconds", pa.float64(), "wall-clock seconds"),
        ]
    ),
)

DATASETS = {d.name: d for d in (SCENARIOS, TRAJECTORIES, SCORES, JUDGE_CALLS, TOKEN_STATS, UPDATES)}
