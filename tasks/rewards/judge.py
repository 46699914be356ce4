"""A judge: a model behind an OpenAI-compatible endpoint, every call of which is kept, paid once, and counted.

Connection errors, 429 (with its Retry-After) and 5xx are tried again by the `openai` client, with back-off. A
call that fails in the end is data, like a failed rollout: it is stored with its error, and what it was to
score stays unscored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from storage.codec import to_json
from storage.errors import ConfigError
from storage.records import JudgeCall
from tasks.settings import JudgeSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

REACHED_WITHIN = 10.0  # seconds, for the check before anything starts


class ReplyCache(Protocol):
    """Replies by what was asked; a store keeps them."""

    def read(self, key: str) -> str | None: ...

    def write(self, key: str, text: str) -> None: ...


@dataclass(frozen=True)
class Question:
    """What a judge is asked.

    Attributes:
        messages: in OpenAI's form.
        schema: JSON schema of the answer.
        prompt_version: names the template and rubric that the messages were made from.
        attempt: 0 for the first try.
        group_id, trajectory_ids: what is judged; the ids in the order in which they are shown.
    """

    messages: Sequence[Mapping[str, str]]
    schema: Mapping[str, Any]
    prompt_version: str
    attempt: int
    group_id: str | None
    trajectory_ids: tuple[str, ...]


class Judge:
    """Asks, within the settings' limits of concurrency, time and budget."""

    def __init__(self, settings: JudgeSettings, cache: ReplyCache | None = None) -> None:
        self.settings = settings
        self._calls: dict[str, JudgeCall] = {}
        self._cache = cache
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._spent = _Spent(settings)
        self._client: AsyncOpenAI | None = None

    @property
    def calls(self) -> list[JudgeCall]:
        """Every call so far, in the order in which they ended."""
        return list(self._calls.values())

    async def ask(self, question: Question) -> JudgeCall:
        """The judge's reply, or the error in place of it; both are noted in `calls`."""
        key = self._key(question)
        call = self._cached(key, question)
        if call is None:
            async with self._slots:
                call = await self._call(key, question)
        self._calls[call.judge_call_id] = call
        return call

    def refuse(self, call: JudgeCall, error: str) -> JudgeCall:
        """Note that a reply was not used, and why."""
        self._calls[call.judge_call_id] = refused = replace(call, error=error)
        return refused

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _key(self, question: Question) -> str:
        settings = self.settings
        asked = [
            settings.model,
            settings.base_url,
            settings.temperature,
            settings.max_tokens,
            settings.structured,
            question.prompt_version,
            question.attempt,
            [dict(message) for message in question.messages],
        ]
        return hashlib.sha256(to_json(asked).encode()).hexdigest()[:32]

    def _cached(self, key: str, question: Question) -> JudgeCall | None:
        text = None if self._cache is None else self._cache.read(key)
        if text is None:
            return None
        kept = json.loads(text)
        now = datetime.now(UTC)
        return self._record(key, question, now, 0.0, cached=True, cost=0.0 if self._priced else None, **kept)

    async def _call(self, key: str, question: Question) -> JudgeCall:
        started_at, clock = datetime.now(UTC), time.monotonic()
        if (limit := self._spent.reached()) is not None:
            return self._record(key, question, started_at, 0.0, error=f"not asked: {limit}")
        self._spent.calls += 1
        from openai import OpenAIError

        try:
            answer = await self._open().chat.completions.create(**self._request(question))
        except OpenAIError as error:
            seconds = time.monotonic() - clock
            return self._record(key, question, started_at, seconds, error=f"{type(error).__name__}: {error}")
        usage = answer.usage
        prompt, completion = (None, None) if usage is None else (usage.prompt_tokens, usage.completion_tokens)
        reply = (answer.choices[0].message.content or "") if answer.choices else ""
        kept: dict[str, Any] = {"reply": reply, "prompt_tokens": prompt, "completion_tokens": completion}
        if self._cache is not None:
            self._cache.write(key, json.dumps(kept))
        cost = self._cost(prompt, completion)
        self._spent.add(prompt, completion, cost)
        return self._record(key, question, started_at, time.monotonic() - clock, cost=cost, **kept)

    def _request(self, question: Question) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.settings.model,
            "messages": [dict(message) for message in question.messages],
            "temperature": self.settings.temperature,
            "max_tokens": self.settings.max_tokens,
        }
        if self.settings.structured == "json_schema":
            schema = {"name": "verdicts", "schema": dict(question.schema), "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.settings.structured == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request

    def _record(
        self, key: str, question: Question, started_at: datetime, seconds: float, **fields: Any
    ) -> JudgeCall:
        name = to_json([key, question.trajectory_ids])
        return JudgeCall(
            judge_call_id=hashlib.sha256(name.encode()).hexdigest()[:32],
            model=self.settings.model,
            prompt_version=question.prompt_version,
            attempt=question.attempt,
            group_id=question.group_id,
            trajectory_ids=question.trajectory_ids,
            request=to_json([dict(message) for message in question.messages]),
            started_at=started_at,
            seconds=seconds,
            **fields,
        )

    @property
    def _priced(self) -> bool:
        return self.settings.prompt_price is not None or self.settings.completion_price is not None

    def _cost(self, prompt: int | None, completion: int | None) -> float | None:
        if not self._priced or prompt is None or completion is None:
            return None
        per_million = prompt * (self.settings.prompt_price or 0) + completion * (
            self.settings.completion_price or 0
        )
        return per_million / 1e6

    def _open(self) -> AsyncOpenAI:
        if self._client is None:
            from openai import AsyncOpenAI

            settings = self.settings
            self._client = AsyncOpenAI(
                base_url=settings.base_url,
                api_key=_api_key(settings),
                timeout=settings.timeout,
                max_retries=settings.retries,
            )
        return self._client


@dataclass
class _Spent:
    """What the calls of one scoring stage have used up."""

    settings: JudgeSettings
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, prompt: int | None, completion: int | None, cost: float | None) -> None:
        self.tokens += (prompt or 0) + (completion or 0)
        self.cost += cost or 0.0

    def reached(self) -> str | None:
        """The limit that no further call may pass, or None."""
        used = {"max_calls": self.calls, "max_tokens_spent": self.tokens, "max_cost": self.cost}
        for name, amount in used.items():
            limit = getattr(self.settings, name)
            if limit is not None and amount >= limit:
                return f"judge.{name} = {limit} is reached"
        return None


def check_judge(settings: JudgeSettings) -> None:
    """Ask the judge's endpoint for its models, before anything starts.

    Raises:
        ConfigError: the key is missing or refused, or nothing answers there.
    """
    import openai

    key, where = _api_key(settings), settings.base_url or "OpenAI's endpoint"
    try:
        with openai.OpenAI(
            base_url=settings.base_url, api_key=key, timeout=REACHED_WITHIN, max_retries=1
        ) as client:
            client.models.list()
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise ConfigError(f"{where} refuses the key in {settings.api_key_env}: {error}") from error
    except openai.APIConnectionError as error:
        raise ConfigError(f"{where} does not answer ({error}); start it, or mend base_url.") from error
    except openai.APIStatusError:
        pass  # it answers; not every server lists its models


def _api_key(settings: JudgeSettings) -> str:
    if settings.api_key_env is None:
        return "none"  # the client wants one; servers that need none do not look at it
    key = os.environ.get(settings.api_key_env)
    if not key:
        raise ConfigError(
            f"the environment variable {settings.api_key_env} holds no key for the judge; set it, or set "
            "api_key_env to null for a server that needs none."
        )
    return key
