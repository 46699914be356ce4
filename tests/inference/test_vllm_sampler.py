"""How the vLLM sampler bears a server that fails: scripted answers, no vLLM."""

from __future__ import annotations

import json

import httpx
import pytest

from tasks.inference import vllm_sampler
from tasks.inference.sampler import NO_POLICY, InferenceError, PolicyWeights, SamplingParams
from tasks.inference.vllm_sampler import VllmSampler
from tasks.inference.vllm_server import VllmServer
from tests.inference.conftest import SETTINGS

PARAMS = SamplingParams(1.0, 2, (9,))


def answer(request: httpx.Request, **fields) -> httpx.Response:
    choice = {
        "prompt_token_ids": json.loads(request.content)["prompt"],
        "token_ids": [8, 9],
        "logprobs": {"token_logprobs": [-0.5, -0.25]},
        "finish_reason": "stop",
    }
    return httpx.Response(200, json={"choices": [choice | fields]})


@pytest.fixture
async def scripted(tmp_path, monkeypatch):
    """A sampler whose requests are answered by the functions in a list, one after the other."""
    monkeypatch.setattr(vllm_sampler, "BACK_OFF", (0.0, 0.0))
    monkeypatch.setattr(vllm_sampler, "CACHE_RESET_ATTEMPTS", 2)
    monkeypatch.setattr(VllmServer, "check_alive", lambda self: None)
    script: list = []
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return script.pop(0)(request)

    (tmp_path / "log").write_text("the engine's last words\n")
    server = VllmServer(tmp_path, SETTINGS, tmp_path / "log")
    server._is_ready = True
    sampler = VllmSampler(server)
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://vllm") as client:
        sampler._client = client
        yield sampler, script, asked


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("connection reset")


def broken(request: httpx.Request) -> httpx.Response:
    return httpx.Response(500, text="engine error")


async def test_a_lost_connection_and_a_server_error_are_tried_again(scripted):
    sampler, script, asked = scripted
    script += [lost, broken, answer]
    completion = await sampler.sample([5, 6], PARAMS, seed=1)
    assert (completion.token_ids, completion.logprobs, completion.finish_reason) == (
        (8, 9),
        (-0.5, -0.25),
        "stop",
    )
    assert len({request.content for request in asked}) == 1  # the same seed: the same reply


async def test_what_stays_broken_is_an_inference_error_with_the_log(scripted):
    sampler, script, asked = scripted
    script += [broken] * 3
    with pytest.raises(InferenceError, match=r"3 times.*500: engine error(.|\n)*last words"):
        await sampler.sample([5, 6], PARAMS, seed=1)
    assert len(asked) == 3


async def test_a_refused_request_is_not_tried_again(scripted):
    sampler, script, asked = scripted
    script += [
        lambda request: httpx.Response(400, json={"error": {"message": "temperature must be in [0, 2]"}})
    ]
    with pytest.raises(InferenceError, match="400: temperature must be"):
        await sampler.sample([5, 6], PARAMS, seed=1)
    assert len(asked) == 1


async def test_sampling_is_asked_for_without_filters_and_by_named_stops_alone(scripted):
    sampler, script, asked = scripted
    script += [answer]
    await sampler.sample([5, 6], PARAMS, seed=7)
    body = json.loads(asked[0].content)
    assert (body["top_p"], body["top_k"], body["ignore_eos"], body["stop_token_ids"]) == (1.0, 0, True, [9])
    assert (body["seed"], body["temperature"], body["max_tokens"]) == (7, 1.0, 2)


async def test_another_prompt_in_the_answer_is_an_error(scripted):
    sampler, script, _ = scripted
    script += [lambda request: answer(request, prompt_token_ids=[1, 5, 6])]
    with pytest.raises(InferenceError, match="another prompt"):
        await sampler.sample([5, 6], PARAMS, seed=1)


async def test_a_reply_that_was_aborted_is_an_error(scripted):
    sampler, script, _ = scripted
    script += [lambda request: answer(request, finish_reason="abort")]
    with pytest.raises(InferenceError, match="'abort'"):
        await sampler.sample([5, 6], PARAMS, seed=1)


async def test_a_prefix_cache_that_stays_is_an_error_and_no_policy_is_served(scripted, tmp_path, monkeypatch):
    sampler, script, _ = scripted
    monkeypatch.setattr("tasks.models.adapters.merged_weights", lambda base, adapter, out: None)
    sampler.policy_version = 3
    script += [lambda request: httpx.Response(200, json={"results": [None]})]
    script += [lambda request: httpx.Response(200, json={"success": False})] * 2
    with pytest.raises(InferenceError, match="prefix cache"):
        await sampler.load_policy(PolicyWeights(tmp_path, (5, 6), (-1.0,)), 4)
    assert sampler.policy_version == NO_POLICY
