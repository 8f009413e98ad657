"""The value of the engine option `stream_interval: auto`: as many tokens a chunk as the client keeps up with.

vLLM and SGLang may send a chunk after every n tokens instead of each. Both send the first token at once and
the last ones with the end of the answer, so TTFT and E2E do not change (vLLM 0.32.0,
v1/engine/output_processor.py; SGLang, managers/scheduler_output_processor_mixin.py). The number depends only
on definitions, as that of `concurrency: auto` does, and takes the place of `auto` in the resolved plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpcbench.schema.model import Model, option_name
from hpcbench.schema.plan import ResolvedRunTask

OPTION = "stream_interval"

CHUNK_MS = 0.03
"""CPU time of the client for one chunk, milliseconds: benchmarks/timing_truth.py, see docs/measuring.md."""

LATENESS_MS = 1.0
"""Longest wait of a chunk behind the chunks that one step of the engine sends."""


def number(in_flight: int) -> int:
    """Tokens a chunk, so that a step's chunks for this many requests take the client at most 1 ms.

    Requests are at different places of their intervals, so a step sends one chunk for each n of them.
    """
    return max(1, math.ceil(round(in_flight * CHUNK_MS / LATENESS_MS, 9)))


def with_number(model: Model, in_flight: int) -> Model:
    """The model with a number for `stream_interval: auto`; at 1, the engines' default, without the option."""
    options = dict(model.engine_options)
    name = option_name(options, OPTION)
    if name is None or options[name] != "auto":
        return model
    if (each := number(in_flight)) > 1:
        options[name] = each
    else:
        del options[name]
    return model.model_copy(update={"engine_options": options})


def with_numbers(run_tasks: Sequence[ResolvedRunTask]) -> list[ResolvedRunTask]:
    """Run tasks with one number for all that share a model: its engine is loaded once for them.

    The points of a sweep share it, too, so that they differ in their load only.
    """
    most: dict[str, int] = {}
    for one in run_tasks:
        most[one.model.name] = max(most.get(one.model.name, 1), one.in_flight or 1)
    return [
        one.model_copy(update={"model": with_number(one.model, most[one.model.name])})
        for one in run_tasks
    ]
