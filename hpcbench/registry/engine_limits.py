"""A run task's requests to an engine compared with the limits that the engine has for every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcbench.plugins import EngineSpec, Limits
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedRunTask

Beyond = tuple[str, str, str]
"""The part of the run task, see `ResolvedRunTask.places`; the problem; the remedy."""


def beyond(run_task: ResolvedRunTask, engine: Any, images: int = 0) -> Iterator[Beyond]:
    """Values that cannot fit. The engine decides about values that may fit.

    Args:
        run_task: the run task; the files of a model on this machine are checked, too.
        engine: the class of its engine; None: it is not available here.
        images: most images of one request; 0: unknown.
    """
    model, generation = run_task.served, run_task.task.generation
    limits = limits_of(model, engine)
    truncates = "truncate_prompt_tokens" in generation.extra
    if limits.tokens is not None and generation.max_tokens >= limits.tokens and not truncates:
        longer = ", or a larger `context_length` of the model" if model.context_length else ""
        yield (
            "max_tokens",
            f"max_tokens {generation.max_tokens} leaves no room for a prompt: model '{model.name}' takes "
            f"at most {limits.tokens} tokens of prompt and answer together, so it would refuse every request",
            f"use a smaller `max_tokens` in `generation`{longer}",
        )
    if limits.images is not None and images > limits.images:
        yield (
            "model",
            f"requests about dataset '{run_task.dataset.name}' have up to {images} images, but engine "
            f"'{model.engine}' of model '{model.name}' takes at most {limits.images} per request",
            "raise the limit in the model's `engine_options`, or leave such samples out with `where`",
        )


def limits_of(model: Model, engine: Any) -> Limits:
    """The engine's limits for every request to a model, as far as they are known here.

    Args:
        model: the model; its files are read if they are on this machine.
        engine: the class of its engine; None: it is not available here.
    """
    if engine is None or not hasattr(engine, "limits"):
        return Limits()
    spec = EngineSpec(
        model.source, model.name, "/socket", dtype=model.dtype, gpus=model.gpus,
        context_length=model.context_length, options=model.engine_options,
    )  # fmt: skip
    try:
        found = engine().limits(spec)
    except Exception:  # noqa: BLE001 - foreign code; another check reports wrong options
        return Limits()
    return found if isinstance(found, Limits) else Limits()
