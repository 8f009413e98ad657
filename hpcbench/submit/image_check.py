"""Whether models, images and GPUs go together: from documents before anything is fetched, then in the image.

What certainly cannot run is refused at its place; what probably cannot is a warning. docs/cluster-guide.md
has the rules: NVIDIA's for drivers, a formula for memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import Environment
from hpcbench.registry.source import Loc, Source, read
from hpcbench.schema.documents import Model
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.submit.plan_facts import Facts, ModelFacts

SHARE = 0.9
"""Share of a GPU's memory that an engine is thought to use where `engine_options` do not say it."""

SHARES = ("gpu_memory_utilization", "mem_fraction_static")
"""What engines call that share."""

SHRINKS = ("quantization", "load_format", "cpu_offload_gb", "offload", "model")
"""Options by which weights may take less of the GPUs than they have bytes: then nothing is judged."""

KNOWN = ("vllm", "sglang", "huggingface", "deepseek_ocr", "deepseek_ocr_sglang")
"""Engines known to keep all weights on their GPUs."""

FORWARD = "VLLM_ENABLE_CUDA_COMPATIBILITY"
"""vLLM loads the image's own CUDA driver library (`cuda-compat`) where this is 1."""

Verdict = Literal["runs", "forward", "too old"]

About = Literal["CUDA", "GPUs", "memory"]
"""What a finding compares: the image with the driver, numbers of GPUs, memory."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not go together."""

    problem: Problem
    """Where, what and what to do."""
    certain: bool
    """Whether it cannot run; else it may not."""
    about: About
    """What was compared."""


def cuda_verdict(image: str, driver: str, *, forward: bool = False) -> Verdict:
    """Whether a driver runs programs that were built for a CUDA. Pure.

    NVIDIA's rules: an older CUDA always; the same major version, whatever the minor one; a newer major
    version only by forward compatibility, on GPUs of data centres, with `cuda-compat` in the image.

    Args:
        image: CUDA that the programs are built for, `13.0`.
        driver: newest CUDA that the driver takes, `12.4`.
        forward: whether the model asks for forward compatibility.
    """
    if int(image.split(".")[0]) <= int(driver.split(".")[0]):
        return "runs"
    return "forward" if forward else "too old"


def needed_bytes(known: ModelFacts) -> tuple[float | None, float | None]:
    """What each GPU must hold: of weights alone, and with the KV cache of one request. None: not known."""
    weights, gpus = known.weights, max(1, known.model.gpus)
    if weights.bytes is None:
        return None, None
    alone = weights.bytes * weights.copies / gpus
    cache = (weights.cache_bytes or 0.0) * weights.copies / gpus
    return alone, alone + cache


def stated_share(model: Model) -> float | None:
    """Share of each GPU's memory that the engine is told to use; None: it is not told."""
    for name, value in model.engine_options.items():
        if name.replace("-", "_") in SHARES and isinstance(value, (int, float)) and 0 < value <= 1:
            return float(value)
    return None


def judge(
    resolved: ResolvedPlan, facts: Facts, plan_file: Path | None = None
) -> tuple[Finding, ...]:
    """Compare every model with its image, the site's driver and its GPUs, with nothing fetched.

    Args:
        resolved: the plan.
        facts: what is known of it.
        plan_file: the plan's file, for places of models that stand in no document.
    """
    found: dict[str, Finding] = {}
    for run_task in resolved.run_tasks:
        known = facts.models[run_task.name]
        if known.elsewhere or not run_task.model.gpus:
            continue
        source, below = _place(resolved, run_task, plan_file)
        for finding in (
            *_driver(resolved, known, source, below),
            *_memory(resolved, known, source, below),
        ):
            found.setdefault(str(finding.problem), finding)
    return tuple(found.values())


def refuse(findings: tuple[Finding, ...]) -> None:
    """End where something certainly cannot run.

    Raises:
        UserError: all of that, each at its place.
    """
    if certain := [one.problem for one in findings if one.certain]:
        raise UserError(*certain)


def _driver(
    resolved: ResolvedPlan, known: ModelFacts, source: Source, below: Loc
) -> Iterator[Finding]:
    image, driver = known.image, known.gpus.cuda
    if resolved.site.container.gpu_maker != "nvidia" or image.cuda is None or driver is None:
        return
    verdict = cuda_verdict(image.cuda, driver, forward=_forward(known.model))
    if verdict == "runs":
        return
    loc: Loc = (*below, "image")
    document = resolved.images.get(image.reference or "")
    if document is not None and image.cuda_source == "its document":
        source, loc = _document(resolved.origins.get(f"images/{document.name}")), ("cuda",)
    yield Finding(
        source.problem(
            loc, *_too_old(image.cuda, driver, verdict, _called(resolved, image.reference))
        ),
        certain=verdict == "too old" and image.certain,
        about="CUDA",
    )


def _too_old(cuda: str, driver: str, verdict: Verdict, image: str) -> tuple[str, str]:
    what = f"{image} is made for CUDA {cuda}, the driver of this site takes {driver}"
    if verdict == "forward":
        remedy = "forward compatibility needs GPUs of data centres and cuda-compat in the image"
        return f"{what}: it runs only by forward compatibility, which {FORWARD} asks for", remedy
    return f"{what} (container.cuda)", (
        f"an image for CUDA {driver.split('.')[0]}, nodes with a newer driver, or, on GPUs of data centres, "
        f'{FORWARD}: "1" in the model\'s `env`'
    )


def _memory(
    resolved: ResolvedPlan, known: ModelFacts, source: Source, below: Loc
) -> Iterator[Finding]:
    room, model = known.gpus.memory_gb, known.model
    weights, whole = needed_bytes(known)
    if known.gpus.source == "this machine" and not known.gpus.kind:
        what = f"model '{model.name}' needs {_gpus(model)}, and none is seen on this machine"
        here = "a machine with GPUs, `executor: slurm`, or `gpus: 0` for an engine on CPUs"
        yield Finding(source.problem((*below, "gpus"), what, here), certain=False, about="GPUs")
        return
    if known.gpus.count is not None and model.gpus > known.gpus.count:
        what = (
            f"model '{model.name}' needs {_gpus(model)}, and this machine shows {known.gpus.count}"
        )
        here = "a machine with more GPUs, `executor: slurm`, or a smaller model"
        yield Finding(source.problem((*below, "gpus"), what, here), certain=False, about="GPUs")
    if room is None:
        return
    share = stated_share(model)
    each = f"GPUs of {room:.0f} GiB"
    remedy = "more `gpus`, a smaller or quantised model, or GPUs with more memory"
    shrinks = any(name.replace("-", "_") in SHRINKS for name in model.engine_options)
    if weights is not None and not shrinks:
        fits = room * (share or 1.0)
        if weights > fits * 2**30:
            at = f"{_gib(weights)} of weights on "
            at += f"each of its {model.gpus} GPUs" if model.gpus > 1 else "its GPU"
            what = f"model '{model.name}' needs {at}, {known.gpus.source} has {each}"
            what += f", of which the engine may use {share:.0%}" if share is not None else ""
            yield Finding(
                source.problem((*below, "gpus"), what, remedy),
                certain=model.engine in KNOWN,
                about="memory",
            )
            return
        if whole is not None and whole > room * (share or SHARE) * 2**30:
            cache = " and the KV cache of one request" if known.weights.cache_bytes else ""
            what = f"model '{model.name}' needs {_gib(whole)} on each GPU for weights{cache}, and "
            what += f"an engine uses {share or SHARE:.0%} of {each}: it may not start"
            yield Finding(
                source.problem((*below, "gpus"), what, f"{remedy}, or a smaller `context_length`"),
                certain=False,
                about="memory",
            )
            return
    # Makers count 10^9 bytes: a card sold as 80 GB has 79.6 GiB.
    if model.gpu_memory_gb is not None and model.gpu_memory_gb * 1e9 > room * 2**30 * 1.005:
        what = f"model '{model.name}' asks for {model.gpu_memory_gb:g} GiB on each GPU"
        yield Finding(
            source.problem(
                (*below, "gpu_memory_gb"), f"{what}, {known.gpus.source} has {each}", remedy
            ),
            certain=False,
            about="memory",
        )


def _gpus(model: Model) -> str:
    return f"{model.gpus} GPUs" if model.gpus > 1 else "a GPU"


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def _forward(model: Model) -> bool:
    """Whether a model asks for forward compatibility: vLLM's switch, or the folder on its library path."""
    asked = model.env.get(FORWARD, "").strip().lower() in ("1", "true")
    return asked or "/compat" in model.env.get("LD_LIBRARY_PATH", "")


def _called(resolved: ResolvedPlan, reference: str | None) -> str:
    """How people call an image: by its document, else by its reference, the digest left out."""
    document = resolved.images.get(reference or "")
    if document is not None:
        return f"image '{document.name}'"
    return (reference or "this Python").partition("@")[0]


def _place(
    resolved: ResolvedPlan, run_task: ResolvedRunTask, plan_file: Path | None
) -> tuple[Source, Loc]:
    """The document that states a model, or the entry of the plan that does."""
    name = run_task.model.name
    if (file := resolved.origins.get(f"models/{name}")) is not None:
        return _document(file), ()
    for index, entry in enumerate(resolved.plan.run_tasks):
        own = entry if isinstance(entry, str) else entry.name
        if plan_file is not None and run_task.name.startswith(own):
            return _document(str(plan_file)), ("run_tasks", index, "model")
    return _document(str(plan_file) if plan_file is not None else None), ()


# --- in the image, once it is built -----------------------------------------------------------------


def check_images(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """Compare every model with the image it is to run in, once that is there.

    Args:
        resolved: the plan.
        prepared: by `ResolvedRunTask.environment`.

    Raises:
        UserError: all that does not fit, each where the model says it.
    """
    problems = [
        problem
        for run_task in resolved.run_tasks
        for problem in _misfits(resolved, run_task.model, prepared[run_task.environment])
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _misfits(resolved: ResolvedPlan, model: Model, environment: Environment) -> Iterator[Problem]:
    source = _document(resolved.origins.get(f"models/{model.name}"))
    image = model.image or "this Python"
    for number, line in enumerate(model.needs):
        needed = Requirement(line)
        version = _version(environment, needed.name)
        if version is None:
            what = f"{image} has no {needed.name}, model '{model.name}' needs {line}"
        elif not needed.specifier.contains(version, prereleases=True):
            what = f"{image} has {needed.name} {version}, model '{model.name}' needs {line}"
        else:
            continue
        yield source.problem(("needs", number), what, "another image, or another version of it")
    driver, cuda = resolved.site.container.cuda, environment.versions.get("cuda")
    if not (model.gpus and driver and cuda) or resolved.site.container.gpu_maker != "nvidia":
        return
    verdict = cuda_verdict(cuda, driver, forward=_forward(model))
    if verdict == "too old":
        yield source.problem(("image",), *_too_old(cuda, driver, verdict, _called(resolved, image)))


def _version(environment: Environment, name: str) -> str | None:
    """A build of an engine for processors goes by another name."""
    normal = canonicalize_name(name)
    return environment.versions.get(normal) or environment.versions.get(f"{normal}-cpu")


def _document(file: str | None) -> Source:
    """The document that states it; a model written out inside a plan has no file of its own."""
    try:
        return read(Path(file or ""))
    except UserError:
        return Source(Path(file or "the plan"), None)
