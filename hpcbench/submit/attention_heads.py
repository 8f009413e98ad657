"""Whether the GPUs of a tensor can share a model's attention heads, by the config.json beside its weights.

The rules are those of vLLM (`verify_with_parallel_config`, `QKVParallelLinear`) and SGLang: each GPU computes
as many heads, and has as many heads of keys and values, or one of these is on as many GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench.registry.resource_shapes import DATA, TENSOR, option_of
from hpcbench.registry.source import Loc
from hpcbench.schema.model import Model, option_name

ENGINES = ("vllm", "sglang")
"""Engines whose rules these are."""

CHANGES = ("hf_overrides", "json_model_override_args", "enable_dp_attention", "model")
"""Options with which an engine has other heads, or shares them otherwise: then nothing is checked."""

WHOLE_TOWER = {"vllm": "mm_encoder_tp_mode: data", "sglang": "mm_enable_dp_encoder: true"}
"""Option with which each GPU has the whole image tower."""

Uneven = tuple[Loc, str, str, bool]
"""Place in the model's definition, problem, remedy, whether the engine certainly refuses it."""


def uneven(model: Model, config: Mapping[str, Any]) -> Iterator[Uneven]:
    """Heads that the GPUs of a tensor cannot share equally, at most one finding.

    Args:
        model: the definition, see `spread`.
        config: what `plan_facts.read_config` has read.
    """
    tensor, loc = _tensor(model)
    names = {name.replace("-", "_").partition(".")[0] for name in model.engine_options}
    if model.engine not in ENGINES or tensor < 2 or names.intersection(CHANGES):
        return
    heads, keys = _count(config, "num_attention_heads"), _count(config, "num_key_value_heads")
    if config.get("kv_lora_rank"):
        keys = 0  # every GPU has the whole cache of latent attention
    of = f"tensor {tensor} needs as many on each GPU"
    if heads % tensor:
        what = f"model '{model.name}' has {heads} attention heads, but {of}"
        yield loc, what, f"{_sizes(heads, keys)}, or `pipeline`", True
    elif keys and max(keys, tensor) % min(keys, tensor):
        what = f"model '{model.name}' has {keys} heads of keys and values, but {of}"
        yield loc, what, f"{_sizes(heads, keys)}, or `pipeline`", True
    elif not _whole_tower(model) and (tower := _tower(config)) % tensor:
        what = f"the image tower of model '{model.name}' has {tower} attention heads, but {of}: "
        remedy = f"set `{WHOLE_TOWER[model.engine]}` in engine_options: each GPU has the tower then"
        yield loc, what + "the engine might refuse it", remedy, False


def _tensor(model: Model) -> tuple[int, Loc]:
    """GPUs that share each layer, and where the definition says so."""
    if model.parallel is not None:
        return model.parallel.tensor, ("parallel", "tensor")
    if (written := option_name(model.engine_options, *TENSOR)) is not None:
        value = model.engine_options[written]
        known = isinstance(value, int) and not isinstance(value, bool)
        return (int(value) if known else 1), ("engine_options", written)  # type: ignore[arg-type]
    return (1 if option_of(model, DATA) else model.gpus), ("gpus",)


def _whole_tower(model: Model) -> bool:
    name, _, value = WHOLE_TOWER[model.engine].partition(": ")
    return str(option_of(model, (name,))).lower() == value


def _sizes(heads: int, keys: int) -> str:
    """The sizes that a tensor of this model may have."""
    fit = [
        size
        for size in range(1, heads + 1)
        if heads % size == 0 and (not keys or max(keys, size) % min(keys, size) == 0)
    ]
    return f"choose a `tensor` of {', '.join(map(str, fit))}"


def _tower(config: Mapping[str, Any]) -> int:
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    return _count(vision, "num_attention_heads") or _count(vision, "num_heads")


def _count(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
