"""Serving an adapter on a port: with the key alone, on loopback alone, under no development endpoint."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from tasks.inference.sampler import Completion
from tasks.inference.serve import serve_command
from tasks.inference.vllm_server import private_folder, start_guarded
from tasks.settings import ModelSettings
from tests.inference.conftest import RANK, SETTINGS
from tests.inference.test_samplers import trainer_logprobs

KEY = "a-key-for-this-test"
BODY = {
    "model": "guesser",
    "prompt": [5, 6, 7],
    "max_tokens": 3,
    "temperature": 1.0,
    "seed": 1,
    "logprobs": 0,
    "return_token_ids": True,
}


def command(tiny_model, policies, scratch, **changes):
    arguments = {"name": "guesser", "port": 1, "api_key": KEY, "scratch": scratch} | changes
    settings = SETTINGS.model_copy(update={"weights": arguments.pop("weights", "merged")})
    adapter = policies[0].weights.adapter_folder
    return serve_command(ModelSettings(base=str(tiny_model)), settings, tiny_model, adapter, **arguments)


def test_the_key_is_in_the_environment_and_not_on_the_command_line(tiny_model, policies, tmp_path):
    what = command(tiny_model, policies, tmp_path)
    assert what.environment["VLLM_API_KEY"] == KEY
    assert not any(KEY in part for part in what.command)
    assert (
        what.environment["VLLM_SERVER_DEV_MODE"]
        == what.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"]
        == "0"
    )
    assert what.command[what.command.index("--host") + 1] == "127.0.0.1"


def test_a_lora_adapter_is_named_with_its_own_rank(tiny_model, policies, tmp_path):
    what = command(tiny_model, policies, tmp_path, weights="lora").command
    assert what[what.index("--lora-modules") + 1] == f"guesser={policies[0].weights.adapter_folder}"
    assert int(what[what.index("--max-lora-rank") + 1]) >= RANK
    assert not list(tmp_path.iterdir())  # nothing merged


def test_an_empty_key_is_refused(tiny_model, policies, tmp_path):
    with pytest.raises(ValueError, match="VLLM_API_KEY"):
        command(tiny_model, policies, tmp_path, api_key="")


@pytest.mark.vllm
async def test_every_route_but_health_needs_the_key(tiny_model, policies, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scratch = private_folder()
    what = command(tiny_model, policies, scratch, port=port)
    with (tmp_path / "log").open("ab") as log:
        process = start_guarded(what.command, folder=scratch, log=log, environment=what.environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while not await is_healthy(client):
                assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
                await asyncio.sleep(0.3)
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}):
                for path in ("/v1/completions", "/invocations", "/tokenize", "/collective_rpc"):
                    assert (await client.post(path, json=BODY, headers=headers)).status_code == 401, path
                assert (await client.get("/metrics", headers=headers)).status_code == 401
            headers = {"Authorization": f"Bearer {KEY}"}
            assert (await client.post("/collective_rpc", json={}, headers=headers)).status_code == 404
            response = await client.post("/v1/completions", json=BODY, headers=headers)
            assert response.status_code == 200
    finally:
        process.stdin.close()
        process.wait(30)
    assert not scratch.exists()
    choice = response.json()["choices"][0]
    completion = Completion(tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"]), "length")
    assert completion.logprobs == pytest.approx(
        trainer_logprobs(policies[0].model, BODY["prompt"], completion, 1.0), abs=1e-3
    )


async def is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False
