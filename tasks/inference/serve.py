"""What `rollmill serve` runs: an adapter behind vLLM's OpenAI server, for programs on this machine.

Unlike the server that a flow starts, this one listens on a port: so it has no development endpoints, loads no
adapters at run time, and every route of it but /health asks for the key (`serve_key`).
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tasks.inference.vllm_command import loads_lora, server_command, server_environment
from tasks.inference.vllm_server import private_folder, start_guarded
from tasks.settings import InferenceSettings, ModelSettings

KEY_VARIABLE = "VLLM_API_KEY"  # vLLM's own name; on the command line every user of the machine could read it
ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class ServeCommand:
    command: list[str]
    environment: dict[str, str]


def serve_command(
    model: ModelSettings,
    inference: InferenceSettings,
    base_folder: Path,
    adapter_folder: Path,
    *,
    name: str,
    port: int,
    api_key: str,
    scratch: Path,
) -> ServeCommand:
    """The command that serves an adapter on a loopback port, and the environment that it needs.

    Where weights are merged, as `auto` has it on a CPU, they are written into `scratch` now: keep that folder
    for as long as the server runs.

    Args:
        name: what requests call the model.
        api_key: what they send as bearer token; not empty.

    Raises:
        ValueError: the key is empty, which would switch the check off.
        AdapterError: the adapter does not fit the base model.
    """
    if not api_key:
        raise ValueError(
            f"The key of the server is empty. Set {KEY_VARIABLE}, or let `rollmill serve` make one."
        )
    if loads_lora(inference.weights):
        rank = int(json.loads((adapter_folder / "adapter_config.json").read_text(encoding="utf-8"))["r"])
        command = server_command(
            base_folder, inference, dtype=model.dtype, lora_rank=rank, name=f"{name}-base"
        )
        command += ["--lora-modules", f"{name}={adapter_folder}"]
    else:
        from tasks.models.adapters import merged_weights

        merged = scratch / "merged"
        merged_weights(base_folder, adapter_folder, merged)
        command = server_command(merged, inference, dtype=model.dtype, lora_rank=None, name=name)
    if model.chat_template is not None:
        command += ["--chat-template", model.chat_template]
    command += ["--host", ADDRESS, "--port", str(port)]
    command += ["--middleware", "tasks.inference.serve_key.RequireKey"]
    environment = server_environment(inference) | {
        KEY_VARIABLE: api_key,
        "VLLM_SERVER_DEV_MODE": "0",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
        "VLLM_RPC_BASE_PATH": str(scratch),
        "TMPDIR": str(scratch),
    }
    return ServeCommand(command, environment)


def serve_adapter(
    model: ModelSettings,
    inference: InferenceSettings,
    base_folder: Path,
    adapter_folder: Path,
    *,
    name: str,
    port: int,
    api_key: str,
) -> int:
    """Serve an adapter until the server ends or Ctrl-C comes; returns its exit status. Its output is ours.

    Merged weights go when it ends, in whatever way. Raises as `serve_command` does.
    """
    scratch = private_folder()
    try:
        what = serve_command(
            model,
            inference,
            base_folder,
            adapter_folder,
            name=name,
            port=port,
            api_key=api_key,
            scratch=scratch,
        )
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    process = start_guarded(what.command, folder=scratch, log=sys.stderr.buffer, environment=what.environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        assert process.stdin is not None
        process.stdin.close()
        return process.wait()
