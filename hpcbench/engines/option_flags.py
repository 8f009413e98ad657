"""A model definition's engine options as a command line, in the form that vLLM and SGLang share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings as a command line in vLLM's manner.

    | setting | words |
    |---|---|
    | `max_num_seqs: 32` | `--max-num-seqs 32` |
    | `enforce_eager: true` | `--enforce-eager` |
    | `enable_prefix_caching: false` | `--no-enable-prefix-caching` |
    | `limit_mm_per_prompt: {image: 1}` | `--limit-mm-per-prompt '{"image": 1}'` |
    | `logits_processors: [a, b]` | `--logits-processors a b` |
    | `seed: null` | none |
    """
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
