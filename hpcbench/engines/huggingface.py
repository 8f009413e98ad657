"""Hugging Face transformers as a child process: `python -m hpcbench.engines.huggingface`.

This engine only needs torch and transformers, and is the reference for the others. Waiting requests are
answered in small batches; with `max_batch: 1` each answer is computed alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from hpcbench import garbage
from hpcbench.engines.request_limits import positions
from hpcbench.errors import Problem, UserError, unknown
from hpcbench.plugins import API, Command, EngineSpec, Limits

OPTIONS = {
    "attn_implementation": "eager, sdpa or flash_attention_2",
    "batch_wait_ms": "longest wait for more requests to share a batch, ms; preparation may extend it",
    "gpu_memory_share": "share of each GPU's memory that PyTorch may use",
    "max_batch": "most requests in a batch",
    "model": "further arguments of from_pretrained",
    "processor": "arguments of AutoProcessor.from_pretrained, e.g. max_pixels",
    "trust_remote_code": "run code that comes with the model",
}
"""Keys of `engine_options`."""
MAX_BATCH, BATCH_WAIT_MS = 8, 10.0
"""Defaults; benchmarks/hf_batching.py shows their effect."""


class HuggingFaceEngine:
    """Serves a model with transformers."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = (
        "torch", "transformers", "tokenizers", "pillow", "llguidance",
    )  # fmt: skip
    """Distributions whose versions are recorded."""
    reads_files: ClassVar[bool] = True
    """Whether it reads images by their path."""
    tuned_options: ClassVar[Mapping[str, tuple[int | None, tuple[int, ...]]]] = {
        "max_batch": (MAX_BATCH, (1, 2, 4, 8, 16, 32))
    }
    """Options that `hpcbench tune` tries: the default, and values in order."""
    memory_share_option: ClassVar[str] = "gpu_memory_share"
    """Option for the share of a GPU's memory that PyTorch may use."""
    needs: ClassVar[tuple[str, ...]] = ("torch", "transformers")
    extra: ClassVar[str] = "hf"
    generation: ClassVar[frozenset[str]] = frozenset(
        {
            "frequency_penalty", "ignore_eos", "min_p", "min_tokens", "presence_penalty",
            "repetition_penalty", "response_format", "skip_special_tokens", "stop_token_ids", "top_k",
        }
    )  # fmt: skip
    """Settings of a request beyond the common ones, under vLLM's names; all are supported (chat.py)."""

    def launch_command(self, spec: EngineSpec) -> Command:
        """This module as a server."""
        if problems := list(_wrong(spec.options)):
            raise UserError(*problems)
        argv = [sys.executable, "-m", "hpcbench.engines.huggingface"]
        argv += ["--model", spec.model_path, "--name", spec.model_name, "--uds", spec.socket]
        argv += ["--dtype", spec.dtype, "--gpus", str(spec.gpus)]
        if spec.context_length is not None:
            argv += ["--context-length", str(spec.context_length)]
        if spec.media_root is not None:
            argv += ["--media-root", spec.media_root]
        options = dict(spec.options)
        if spec.chat_template is not None:
            processor = options.get("processor") or {}
            options["processor"] = {**processor, "chat_template": spec.chat_template}
        if options:
            argv += ["--options", json.dumps(options)]
        return Command(argv, {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})

    def limits(self, spec: EngineSpec) -> Limits:
        """Requests that the server answers with 400."""
        own = None if spec.options.get("model") else positions(spec.model_path)
        return Limits(spec.context_length or own)


def _wrong(options: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in options.items():
        if name in ("dtype", "chat_template"):
            yield Problem(
                f"engine option '{name}' is set by hpcbench", remedy=f"set the model's '{name}'"
            )
        elif name not in OPTIONS:
            yield Problem(unknown("engine option", name, OPTIONS))
        elif name == "max_batch" and (type(value) is not int or value < 1):
            yield Problem(
                f"engine option 'max_batch' is {value!r}; it must be a whole number, at least 1"
            )
        elif name == "batch_wait_ms" and (type(value) not in (int, float) or value < 0):
            yield Problem(
                f"engine option 'batch_wait_ms' is {value!r}; it must be a number, 0 or more"
            )
        elif name == "gpu_memory_share" and not (type(value) in (int, float) and 0 < value <= 1):
            yield Problem(f"engine option 'gpu_memory_share' is {value!r}; it must be in (0, 1]")
        elif name in ("model", "processor") and not isinstance(value, Mapping):
            yield Problem(f"engine option '{name}' is {value!r}; it must be a mapping")
        elif name == "trust_remote_code" and type(value) is not bool:
            yield Problem(f"engine option '{name}' is {value!r}; it must be true or false")
        elif name == "attn_implementation" and not isinstance(value, str):
            yield Problem(f"engine option '{name}' is {value!r}; it must be text, such as sdpa")


def threads(environment: Mapping[str, str]) -> int:
    """CPU threads to compute with: the site's number, or the cores of our CPU mask."""
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        value = environment.get(name, "").split(",")[0]
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0))


def main(argv: Sequence[str] | None = None) -> None:
    """Load the model, then serve it; a model that cannot be loaded ends in a traceback and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench.engines.huggingface")
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--uds", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--media-root")
    parser.add_argument("--options", type=json.loads, default={})
    args = parser.parse_args(argv)
    serve(args)


def serve(args: Any) -> None:
    """Serve; all slow imports are in here."""
    # Threads that have no work sleep. By default they wait in loops, and where another process has one of the
    # processors, each of a small model's thousand steps then takes milliseconds.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with garbage.loading():
        from hpcbench.engines.hf_model import HfModel
        from hpcbench.engines.hf_server import application, run
    gc.freeze()  # modules are no garbage: to look at them again takes a fifth of a tiny model's start
    model = HfModel.load(
        args.model,
        dtype=args.dtype,
        gpus=args.gpus,
        context_length=args.context_length,
        media_root=args.media_root,
        options=args.options,
        threads=threads(os.environ),
    )
    wait = args.options.get("batch_wait_ms", BATCH_WAIT_MS) / 1e3
    app = application(model, args.name, args.options.get("max_batch", MAX_BATCH), wait)
    run(app, args.uds)


if __name__ == "__main__":
    main()
