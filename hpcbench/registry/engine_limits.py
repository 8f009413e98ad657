"""What a run task asks of an engine against what that engine refuses in every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcbench.plugins import EngineSpec, Limits
from hpcbench.schema.plan import ResolvedRunTask

Beyond = tuple[str, str, str]
"""What of the run task it is, see `ResolvedRunTask.places`; what is wrong; what to do."""


def beyond(run_task: ResolvedRunTask, engine: Any, images: int = 0) -> Iterator[Beyond]:
    """What cannot fit. What may fit is left to the engine.

    Args:
        run_task: the run task; of a model that is on this machine, the files are looked at, too.
        engine: the class of its engine; None: it cannot be had here.
        images: most images of one request; 0: not known.
    """
    model, generation = run_task.model, run_task.task.generation
    limits = _limits(run_task, engine)
    truncates = "truncate_prompt_tokens" in generation.extra
    if limits.tokens is not None and generation.max_tokens >= limits.tokens and not truncates:
        longer = ", or a larger `context_length` of the model" if model.context_length else ""
        yield (
            "max_tokens",
            f"max_tokens {generation.max_tokens} leaves no room for a prompt: model '{model.name}' takes "
            f"{limits.tokens} tokens of prompt and answer together, so every request would be refused",
            f"a smaller `max_tokens` in `generation`{longer}",
        )
    if limits.images is not None and images > limits.images:
        yield (
            "model",
            f"requests about dataset '{run_task.dataset.name}' have up to {images} images, and engine "
            f"'{model.engine}' of model '{model.name}' takes at most {limits.images} in one",
            "a larger limit in the model's `engine_options`, or `where` leaves out such samples",
        )


def _limits(run_task: ResolvedRunTask, engine: Any) -> Limits:
    model = run_task.model
    if engine is None or not hasattr(engine, "limits"):
        return Limits()
    spec = EngineSpec(
        model.source, model.name, "/socket", dtype=model.dtype, gpus=model.gpus,
        context_length=model.context_length, options=model.engine_options,
    )  # fmt: skip
    try:
        found = engine().limits(spec)
    except Exception:  # noqa: BLE001 - foreign code; wrong options are told where they are checked
        return Limits()
    return found if isinstance(found, Limits) else Limits()
