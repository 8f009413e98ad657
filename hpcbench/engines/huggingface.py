"""Hugging Face transformers as a child process: `python -m hpcbench.engines.huggingface`.

One request at a time, batch 1: slow and deterministic, the reference the other engines are compared with,
and the engine that needs nothing but torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import API, Command, EngineSpec, unknown

OPTIONS = {
    "attn_implementation": "eager, sdpa or flash_attention_2",
    "trust_remote_code": "run code that comes with the model",
    "model": "further arguments of from_pretrained",
    "processor": "arguments of AutoProcessor.from_pretrained, e.g. max_pixels",
}
"""What `engine_options` may hold."""


class HuggingFaceEngine:
    """Serves a model with transformers."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "pillow")
    """Distributions whose versions are recorded."""
    generation: ClassVar[frozenset[str]] = frozenset()
    """It knows no settings beyond OpenAI's."""

    def launch_command(self, spec: EngineSpec) -> Command:
        """This very module as a server."""
        wrong = [name for name in spec.options if name not in OPTIONS]
        if wrong:
            raise UserError(*(Problem(unknown("engine option", name, OPTIONS)) for name in wrong))
        argv = [sys.executable, "-m", "hpcbench.engines.huggingface"]
        argv += ["--model", spec.model_path, "--name", spec.model_name, "--uds", spec.socket]
        argv += ["--dtype", spec.dtype, "--gpus", str(spec.gpus)]
        if spec.context_length is not None:
            argv += ["--context-length", str(spec.context_length)]
        options = dict(spec.options)
        if spec.chat_template is not None:
            processor = options.get("processor") or {}
            options["processor"] = {**processor, "chat_template": spec.chat_template}
        if options:
            argv += ["--options", json.dumps(options)]
        return Command(argv, {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})


def threads(environment: Mapping[str, str]) -> int:
    """CPU threads to compute with: what the site says, or the cores we are bound to."""
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
    parser.add_argument("--options", type=json.loads, default={})
    args = parser.parse_args(argv)
    serve(args)


def serve(args: Any) -> None:
    """Everything heavy is imported here."""
    from hpcbench.engines.hf_model import HfModel
    from hpcbench.engines.hf_server import application, run

    model = HfModel.load(
        args.model,
        dtype=args.dtype,
        gpus=args.gpus,
        context_length=args.context_length,
        options=args.options,
        threads=threads(os.environ),
    )
    run(application(model, args.name), args.uds)


if __name__ == "__main__":
    main()
