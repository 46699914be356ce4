"""Every setting of a run, one pydantic model for each concern. `flows/config.py` composes them.

A default stands beside its field and is the field's usual starting point, not this machine's best. A setting
that could do nothing is refused where it is read, with the field, the value and the fix.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

VLLM_HOTTEST = 2.0  # what its OpenAI-compatible endpoint accepts at most


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LoraSettings(Settings):
    rank: PositiveInt = 16
    """Rank of the adapter's matrices."""
    alpha: PositiveFloat = 32
    """Scale of the adapter: its product is multiplied by alpha / rank."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the adapter's input. Anything but 0 makes the first importance ratio differ from 1."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Layers that get an adapter, as peft names them."""


class ModelSettings(Settings):
    base: str
    """A local folder, a hub id, or `smollm2-135m-instruct`, which comes from a PyPI package."""
    revision: str | None = None
    """Revision of a hub model. Only for hub ids."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute type of the frozen base: auto is bfloat16 where the hardware has it, else float32."""
    chat_template: str | None = None
    """Path of a Jinja file that replaces the tokenizer's chat template."""
    lora: LoraSettings = LoraSettings()


class EnvironmentSettings(Settings):
    name: str
    """`package.module:Class` of the environment."""
    args: dict[str, Any] = {}
    """Keyword arguments of its constructor."""


class ScenarioSettings(Settings):
    source: Literal["environment", "file", "function"] = "environment"
    """Where scenarios come from: the environment's own generator; files (JSONL, Parquet, or the folder of a
    split that Hugging Face's `datasets` saved); or a function of yours."""
    train: PositiveInt | str = 256
    """How many to generate for training, or the path where source is `file`, or
    `package.module:function` where it is `function`: called with the split and the run's seed, it yields
    scenarios."""
    validation: PositiveInt | str = 32
    """The same for the held-out set. Its scenarios never train."""
    validation_seed: int | None = None
    """Seed that the held-out set is generated with; null is the run's. Fixed, it gives runs of different
    seeds the same held-out set, and what is in it is left out of their training scenarios."""


class RolloutSettings(Settings):
    groups_per_step: PositiveInt = 2
    """Scenarios that are played in a step."""
    rollouts_per_group: PositiveInt = 4
    """How often each of them is played; advantages compare these with each other."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature, applied by the sampler and by the trainer alike."""
    max_turns: PositiveInt = 10
    """Replies of the policy in one episode."""
    max_tokens_per_turn: PositiveInt = 256
    """New tokens in one reply."""
    max_tokens_per_episode: PositiveInt | None = None
    """New tokens in all replies of an episode; at the limit it ends with `max_tokens`. null sets none."""
    max_tool_calls: PositiveInt | None = None
    """Tool calls in an episode; a reply that goes over it ends the episode with `max_tool_calls`, and its
    calls are not run. null sets none."""
    on_length: Literal["continue", "stop"] = "continue"
    """What follows a reply cut at max_tokens_per_turn: hand it to the environment, or end the episode."""
    on_parse_error: Literal["continue", "stop"] = "continue"
    """What follows a tool call that cannot be read: tell the policy, or end the episode."""
    max_concurrency: PositiveInt = 64
    """Episodes in flight at once."""
    episode_timeout: PositiveFloat = 600.0
    """Seconds after which an episode is ended with stop_reason `timeout`."""
    retries: int = Field(2, ge=0)
    """How often a group is tried again when collecting it raised; single failed episodes are data."""
    max_exceptions: int | None = Field(None, ge=0)
    """Failed rollouts that a step tolerates before its collection fails; null is all of them."""


class InferenceSettings(Settings):
    engine: Literal["vllm", "transformers"] = "vllm"
    """What samples: a vLLM server that the flow starts, or transformers in the flow's own process."""
    weights: Literal["auto", "merged", "lora"] = "auto"
    """How new weights reach vLLM: merged into the base, or as a LoRA adapter. auto: merged on a CPU."""
    max_model_len: PositiveInt = 2048
    """Context window in tokens; an episode that outgrows it ends with `context_overflow`."""
    enforce_eager: bool = False
    """Skip vLLM's compilation: it starts about two minutes sooner and samples about a fifth slower."""
    kv_cache_gib: PositiveFloat | None = None
    """Size of vLLM's KV cache on a CPU, in GiB; null is 2. On a GPU use gpu_memory_utilization."""
    gpu_memory_utilization: float = Field(0.5, gt=0.0, lt=1.0)
    """Share of GPU memory that vLLM takes; the trainer needs the rest."""
    startup_timeout: PositiveFloat = 600.0
    """Seconds within which vLLM must answer after its start."""
    request_timeout: PositiveFloat = 300.0
    """Seconds within which one request must be answered."""
    probe_tolerance: PositiveFloat | None = None
    """Largest difference between sampler's and trainer's log-probabilities of the probe that is accepted
    after new weights were loaded; null is 1e-3 in float32 and 0.15 in bfloat16."""


class JudgeSettings(Settings):
    model: str
    """Name of the judge model, as its endpoint knows it."""
    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint, up to and with `/v1`; null is OpenAI's own."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key, which is never stored; null where none is needed."""
    temperature: float = Field(0.0, ge=0.0)
    """Sampling temperature of the judge."""
    max_tokens: PositiveInt = 4096
    """New tokens in one reply of the judge."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the answer's form is asked for, beside the prompt: what the endpoint supports."""
    concurrency: PositiveInt = 16
    """Requests in flight at once."""
    timeout: PositiveFloat = 120.0
    """Seconds within which one request must be answered."""
    retries: int = Field(4, ge=0)
    """How often a request is sent again after 429, 5xx or a lost connection, with back-off."""
    prompt_price: float | None = Field(None, ge=0.0)
    """Price of a million prompt tokens, in your currency; null where costs are not reckoned."""
    completion_price: float | None = Field(None, ge=0.0)
    """Price of a million tokens of replies."""
    max_calls: PositiveInt | None = None
    """Requests that one scoring stage may send; what is left over stays unscored."""
    max_tokens_spent: PositiveInt | None = None
    """Tokens, of prompts and replies, after which one scoring stage sends no further request."""
    max_cost: PositiveFloat | None = None
    """Cost after which one scoring stage sends no further request."""

    @model_validator(mode="after")
    def _cost_needs_prices(self) -> JudgeSettings:
        if self.max_cost is not None and self.prompt_price is None and self.completion_price is None:
            raise ValueError("max_cost does nothing without prices: set prompt_price and completion_price")
        return self


class RewardSettings(Settings):
    scorer: str = "environment"
    """`environment` for the reward that the environment gives, `ruler` for a judge that compares the rollouts
    of a group, or `package.module:function`."""
    name: str | None = None
    """Name of the scorer in paths and SQL; null derives it from `scorer`."""
    args: dict[str, Any] = {}
    """Keyword arguments of the function."""
    judge: JudgeSettings | None = None
    """The judge of the scorer `ruler`."""
    rubric: str | None = None
    """What the scorer `ruler` tells the judge to look at; null is a good default."""

    @model_validator(mode="after")
    def _judge_judges(self) -> RewardSettings:
        if self.scorer == "ruler":
            if self.judge is None:
                raise ValueError("scorer ruler needs a judge: add a section `judge` with its model")
            if self.args:
                raise ValueError("args do nothing with scorer ruler: leave them out, or see rubric")
        elif self.judge is not None or self.rubric is not None:
            raise ValueError("judge and rubric do nothing without scorer ruler: leave them out, or set it")
        elif self.scorer == "environment" and self.args:
            raise ValueError("args do nothing with scorer environment: leave them out")
        return self


class UpdateSettings(Settings):
    learning_rate: PositiveFloat = 1e-5
    advantage_scale: Literal["group_std", "batch_std", "none"] = "group_std"
    """What a group-centred reward is divided by; `none` is Dr. GRPO."""
    loss: Literal["grpo", "dapo", "dr_grpo", "cispo", "gspo", "reinforce"] = "dapo"
    """Which surrogate is minimised; see docs/grpo.md. grpo, dapo and dr_grpo clip alike and aggregate
    differently."""
    aggregation: Literal["token", "sequence", "constant"] | None = None
    """How token losses become one number: mean over all tokens of the optimiser step, mean over sequences
    of their token means, or a sum divided by a constant length; null is what the loss's paper does."""
    constant_length: PositiveInt | None = None
    """The constant by which each sequence's sum is divided where aggregation is `constant`."""
    clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
    """The importance ratio is clipped below at 1 - clip_low."""
    clip_high: PositiveFloat = 0.28
    """The importance ratio is clipped above at 1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Where the advantage is negative, the ratio counts for no more than this; null sets no such bound."""
    kl_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of the KL term to the reference policy (the base model with the adapter off)."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL; see docs/grpo.md."""
    kl_placement: Literal["loss", "advantage"] = "loss"
    """Whether the KL estimate is a term of the loss, or taken off each token's advantage."""
    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of an entropy bonus."""
    correction: Literal[
        "none", "truncated_token", "truncated_sequence", "masked_token", "masked_sequence"
    ] = "truncated_token"
    """How the difference between sampler and trainer is corrected by importance weights."""
    correction_bound: PositiveFloat = 2.0
    """Importance weights are truncated, or masked, above this."""
    correction_low: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Importance weights are raised to this, or masked, below it."""
    max_grad_norm: PositiveFloat = 1.0
    optimizer_steps: PositiveInt = 1
    """Minibatches that a step's trajectories are split into, each with an optimiser step of its own."""
    epochs: PositiveInt = 1
    """Passes over a step's trajectories."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    tokens_per_batch: PositiveInt = 4096
    """Tokens that go through the model at once; the result does not depend on it, memory does."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""

    @model_validator(mode="after")
    def _constant_needs_its_length(self) -> UpdateSettings:
        constant = self.aggregation == "constant" or (self.aggregation is None and self.loss == "dr_grpo")
        if constant and self.constant_length is None:
            raise ValueError(
                "aggregation by a constant needs constant_length: the most tokens that a rollout samples, "
                "max_turns x max_tokens_per_turn"
            )
        if self.constant_length is not None and not constant:
            raise ValueError(
                "constant_length does nothing here: leave it out, or set aggregation to `constant`"
            )
        return self

    @model_validator(mode="after")
    def _kl_pulls(self) -> UpdateSettings:
        if self.kl_coefficient == 0:
            self._refuse_idle("kl_coefficient is 0; raise it", "kl_estimator", "kl_placement")
        elif self.kl_estimator == "k1" and self.kl_placement == "loss":
            raise ValueError(
                "kl_estimator k1 as a term of the loss has a gradient of mean zero, so it only adds noise: "
                "set kl_placement to `advantage`, or kl_estimator to k2 or k3"
            )
        return self

    @model_validator(mode="after")
    def _bounds_bind(self) -> UpdateSettings:
        if self.loss == "reinforce":
            self._refuse_idle("loss reinforce knows no ratio; choose another", "clip_low", "clip_high")
        if self.loss in ("reinforce", "cispo"):
            self._refuse_idle(f"loss {self.loss} has no dual clip; choose another", "dual_clip")
        if self.correction == "none":
            self._refuse_idle("correction is none; choose one", "correction_bound", "correction_low")
        if self.loss == "reinforce" and self.optimizer_steps * self.epochs > 1:
            raise ValueError(
                "loss reinforce knows no ratio to the policy that the update started from, so that later "
                "optimiser steps would be wrong: set optimizer_steps and epochs to 1, or loss to dapo"
            )
        return self

    def _refuse_idle(self, why: str, *names: str) -> None:
        """Refuse settings that were moved from their default but would do nothing."""
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does nothing here, since {why}, or leave {name} out")


class ValidationSettings(Settings):
    every: PositiveInt | None = 10
    """Validate after every so many steps, and always after the last one; null is after the last alone."""
    at_start: bool = False
    """Validate the policy that the run starts from, too."""
    rollouts_per_scenario: PositiveInt = 1
    """How often each held-out scenario is played."""
    max_scenarios: PositiveInt | None = 64
    """Cap on the held-out scenarios that are played, taken from the first on; null plays all."""
    temperature: PositiveFloat | None = None
    """Sampling temperature; null takes that of the rollouts."""


class TrackingSettings(Settings):
    mlflow_uri: str | None = None
    """Where MLflow records: a tracking server's address; null is a SQLite file inside the store."""
    experiment: str = "rollmill"
    """MLflow experiment that the run belongs to."""
    registered_model: str | None = None
    """Name in MLflow's registry under which adapters are promoted; null is the name of the run."""


class GateSettings(Settings):
    """What a retrained policy must show before it becomes the champion; a parameter of the flow `retrain`."""

    confidence: float = Field(0.95, gt=0.5, lt=1.0)
    """Level of the confidence interval of the difference in validation reward."""
    margin: float = 0.0
    """The interval must lie above this."""
    max_unusable: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of the held-out scenarios that may lack a usable reward of either policy."""


class RunConfig(Settings):
    """Everything that a run is. The file in YAML, the flow's parameter, and what `run.json` keeps."""

    name: str
    """Name of the run: a letter, then letters, digits, '.', '_' or '-'."""
    store: str = ".rollmill/store"
    """Folder of the store."""
    seed: int = 0
    """All draws of the run follow from it: scenarios, their order, sampling, the adapter's start."""
    steps: PositiveInt = 10
    """Updates to make. A finished run goes on when this is raised."""
    model: ModelSettings
    environment: EnvironmentSettings
    scenarios: ScenarioSettings = ScenarioSettings()
    rollouts: RolloutSettings = RolloutSettings()
    inference: InferenceSettings = InferenceSettings()
    reward: RewardSettings = RewardSettings()
    update: UpdateSettings = UpdateSettings()
    validation: ValidationSettings = ValidationSettings()
    tracking: TrackingSettings = TrackingSettings()

    @model_validator(mode="after")
    def _vllm_takes_the_temperature(self) -> RunConfig:
        hottest = max(self.rollouts.temperature, self.validation.temperature or 0.0)
        if self.inference.engine == "vllm" and hottest > VLLM_HOTTEST:
            raise ValueError(
                f"vLLM refuses temperatures above {VLLM_HOTTEST:g}, and {hottest:g} is asked for: lower "
                "rollouts.temperature and validation.temperature, or set inference.engine to transformers"
            )
        return self
