"""vLLM's server as a child process, on a Unix socket in a folder that only this user can enter.

vLLM's key guards /v1 alone, and the endpoints that load weights are open to whoever can connect: so nobody
else can. The folder also holds the sockets between vLLM's own processes and its temporary files.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from tasks.inference import guard
from tasks.inference.sampler import InferenceError
from tasks.inference.vllm_command import server_command, server_environment
from tasks.settings import InferenceSettings

SOCKET_NAME = "vllm"
LONGEST_SOCKET = 107  # bytes of sun_path, without the final zero
INTERNAL_NAME = 37  # '/' and the UUID that vLLM names its own sockets with


class VllmServer:
    """A server for as long as the context is open. Entering starts it; `ready` waits until it answers.

    Args:
        model_folder: config, safetensors and tokenizer.
        log_file: everything that vLLM prints; appended to.
        dtype: auto, float32 or bfloat16.
        lora_rank: rank of the adapters to come; None when weights come merged.
    """

    def __init__(
        self,
        model_folder: Path,
        settings: InferenceSettings,
        log_file: Path,
        *,
        dtype: str = "auto",
        lora_rank: int | None = None,
    ) -> None:
        self.model_folder = model_folder
        self.settings = settings
        self.log_file = log_file
        self.dtype = dtype
        self.lora_rank = lora_rank
        self.folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._is_ready = False

    @property
    def socket(self) -> Path:
        assert self.folder is not None, "the server was not started"
        return self.folder / SOCKET_NAME

    async def __aenter__(self) -> VllmServer:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Launch the server and return at once."""
        self.folder = private_folder()
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        command = server_command(self.model_folder, self.settings, dtype=self.dtype, lora_rank=self.lora_rank)
        with self.log_file.open("ab") as log:
            self._guard = start_guarded(
                [*command, "--uds", str(self.socket)],
                folder=self.folder,
                log=log,
                environment={
                    **server_environment(self.settings),
                    "VLLM_SERVER_DEV_MODE": "1",  # /collective_rpc and /reset_prefix_cache
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1" if self.lora_rank is not None else "0",
                    "VLLM_RPC_BASE_PATH": str(self.folder),
                    "TMPDIR": str(self.folder),
                },
            )
        self._started = time.monotonic()

    async def ready(self) -> None:
        """Wait until the server answers.

        Raises:
            InferenceError: it ended, or does not answer within `startup_timeout` seconds of its start.
        """
        if self._is_ready:
            return
        import httpx

        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://vllm", timeout=5) as client:
            while not self._is_ready:
                self.check_alive()
                if time.monotonic() - self._started > self.settings.startup_timeout:
                    raise InferenceError(
                        f"vLLM did not answer within {self.settings.startup_timeout:g} s of its start. "
                        f"Raise inference.startup_timeout, or see what it waits for.\n{self.log_tail()}"
                    )
                try:
                    self._is_ready = (await client.get("/health")).status_code == 200
                except httpx.TransportError:  # not listening yet
                    await asyncio.sleep(0.2)

    def check_alive(self) -> None:
        """Raise InferenceError when the server has ended."""
        assert self._guard is not None, "the server was not started"
        status = self._guard.poll()
        if status is not None:
            raise InferenceError(
                f"vLLM ended with status {status} while it was {'serving' if self._is_ready else 'starting'} "
                f"{self.model_folder}.\n{self.log_tail()}\nCommon causes: not enough memory (lower "
                "inference.kv_cache_gib or gpu_memory_utilization), a model that vLLM does not know, a "
                "max_model_len beyond the model's. inference.engine: transformers does without vLLM."
            )

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the server's log, under a line that names the file."""
        with self.log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
            text = log.read().decode(errors="replace")
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
        return f"The last lines of {self.log_file}:\n{tail}"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what the server is to read; it goes with the context, or with the server."""
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=self.folder) as folder:
            yield Path(folder)

    async def stop(self) -> None:
        """End the server and all that it started; returns when they are gone. Safe to call twice."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        self._guard.stdin.close()  # the guard sees the end of its input, and does the rest
        try:
            await asyncio.to_thread(self._guard.wait)
        except asyncio.CancelledError:
            self._guard.wait()  # a second Ctrl-C does not leave processes behind either
            raise


def start_guarded(
    command: list[str], *, folder: Path, log: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start `command` under the guard: it ends, and `folder` goes, when the returned process's stdin closes
    or this process dies in whatever way."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # Ctrl-C in a terminal reaches the owner alone, which then ends this in order
    )


def private_folder() -> Path:
    """A new folder of mode 0700, with a path short enough for Unix sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="rollmill-"))
    if len(os.fsencode(folder)) + INTERNAL_NAME > LONGEST_SOCKET:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="rollmill-", dir="/tmp"))
    return folder
