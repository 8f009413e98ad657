"""Whether models, images and GPUs fit together: by definitions before any fetch, then in the built image.

A combination that certainly cannot run is refused at its place; one that probably cannot run gives a warning.
docs/cluster-guide.md has the rules: NVIDIA's rules for drivers, a formula for memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.installed import install_hint
from hpcbench.number_format import percent
from hpcbench.plugins import Environment
from hpcbench.registry.cuda import FORWARD, asks_for_forward_compatibility, runs
from hpcbench.registry.resource_shapes import option_of
from hpcbench.registry.source import Loc, Source, read
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.submit.attention_heads import uneven
from hpcbench.submit.fingerprint import metadata_folders
from hpcbench.submit.plan_facts import Facts, ModelFacts, read_config

SHARE = 0.9
"""Assumed share of a GPU's memory that an engine uses where `engine_options` do not set it."""

SHARES = ("gpu_memory_utilization", "mem_fraction_static")
"""Engines' names of that option."""

SHRINKS = ("quantization", "load_format", "cpu_offload_gb", "offload", "model")
"""Options with which weights may take less GPU memory than their bytes: then memory is not judged."""

KNOWN = ("vllm", "sglang", "huggingface", "deepseek_ocr", "deepseek_ocr_sglang")
"""Engines known to keep all weights on their GPUs."""

Verdict = Literal["runs", "forward", "too old"]

About = Literal["CUDA", "GPUs", "memory", "executor"]
"""Subject of a finding: CUDA of image and driver, numbers of GPUs, memory, where the plan runs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A misfit of model, image and GPUs, or of plan and machine."""

    problem: Problem
    """Place, message and remedy."""
    certain: bool
    """Whether the model certainly cannot run; else it probably cannot."""
    about: About
    """Subject of the comparison."""


def cuda_verdict(image: str, driver: str, *, forward: bool = False) -> Verdict:
    """Whether a driver runs programs built for a version of CUDA. Pure.

    NVIDIA's rules: an older CUDA always runs; so does the same major version, with any minor version; a newer
    major version only by forward compatibility, on GPUs of data centres, with `cuda-compat` in the image.

    Args:
        image: CUDA that the programs are built for, `13.0`.
        driver: newest CUDA that the driver supports, `12.4`.
        forward: whether the model asks for forward compatibility.
    """
    if runs(image, driver):
        return "runs"
    return "forward" if forward else "too old"


def needed_bytes(known: ModelFacts) -> tuple[float | None, float | None]:
    """Bytes on each GPU: weights alone, and with the KV cache of one request. None: unknown."""
    weights, gpus = known.weights, max(1, known.model.gpus) * known.model.nodes
    if weights.bytes is None:
        return None, None
    alone = weights.bytes * weights.copies / gpus
    cache = (weights.cache_bytes or 0.0) * weights.copies / gpus
    return alone, alone + cache


def stated_share(model: Model) -> float | None:
    """Share of each GPU's memory that the model or its engine's options set; None: not set."""
    if model.gpu_memory_share is not None:
        return model.gpu_memory_share
    value = option_of(model, SHARES)
    return float(value) if isinstance(value, (int, float)) and 0 < value <= 1 else None


def judge(
    resolved: ResolvedPlan, facts: Facts, plan_file: Path | None = None
) -> tuple[Finding, ...]:
    """Compare every model with its image, the site's driver and its GPUs, without a fetch.

    Args:
        resolved: the plan.
        facts: the known facts about it.
        plan_file: the plan's file, for the places of models without a definition.
    """
    found: dict[str, Finding] = {}
    for run_task in resolved.run_tasks:
        known = facts.models[run_task.name]
        source, below = _place(resolved, run_task, plan_file)
        findings = [*_heads(known.model, source, below)]
        if not known.elsewhere and run_task.model.gpus:
            findings += _driver(resolved, known, source, below)
            findings += _memory(resolved, known, source, below)
        for finding in findings:
            found.setdefault(str(finding.problem), finding)
    return tuple(found.values())


def judge_fetched(
    resolved: ResolvedPlan, before: tuple[Finding, ...], plan_file: Path | None = None
) -> tuple[Finding, ...]:
    """Compare the fetched weights with their engines: findings that `judge` could not have.

    Args:
        resolved: the plan, with folders of this machine.
        before: the findings of `judge`.
        plan_file: the plan's file, for the places of models without a definition.
    """
    found = {
        str(one.problem): one
        for run_task in resolved.run_tasks
        for one in _heads(run_task.model, *_place(resolved, run_task, plan_file))
    }
    said = {str(one.problem) for one in before}
    return tuple(one for text, one in found.items() if text not in said)


def refuse(findings: tuple[Finding, ...]) -> None:
    """Refuse combinations that certainly cannot run.

    Raises:
        UserError: all these combinations, each at its place.
    """
    if certain := [one.problem for one in findings if one.certain]:
        raise UserError(*certain)


def _heads(model: Model, source: Source, below: Loc) -> Iterator[Finding]:
    for loc, what, remedy, certain in uneven(model, read_config(Path(model.source))):
        yield Finding(source.problem((*below, *loc), what, remedy), certain=certain, about="GPUs")


def _driver(
    resolved: ResolvedPlan, known: ModelFacts, source: Source, below: Loc
) -> Iterator[Finding]:
    image, driver = known.image, known.gpus.cuda
    if resolved.site.container.gpu_maker != "nvidia" or image.cuda is None or driver is None:
        return
    verdict = cuda_verdict(image.cuda, driver, forward=asks_for_forward_compatibility(known.model))
    if verdict == "runs":
        return
    loc: Loc = (*below, "image")
    definition = resolved.images.get(image.reference or "")
    if definition is not None and image.cuda_source == "its definition":
        source, loc = _definition(resolved.origins.get(f"images/{definition.name}")), ("cuda",)
    yield Finding(
        source.problem(
            loc, *_too_old(image.cuda, driver, verdict, _called(resolved, image.reference))
        ),
        certain=verdict == "too old" and image.certain,
        about="CUDA",
    )


def _too_old(cuda: str, driver: str, verdict: Verdict, image: str) -> tuple[str, str]:
    what = f"{image} is built for CUDA {cuda}, but the driver of this site supports CUDA {driver}"
    if verdict == "forward":
        remedy = (
            "check that the GPUs are data-centre GPUs and the image has cuda-compat: it needs both"
        )
        return f"{what}: it runs only with forward compatibility, which {FORWARD} enables", remedy
    return f"{what} (container.cuda)", (
        f"use an image for CUDA {driver.split('.')[0]}, nodes with a newer driver, or, on data-centre GPUs, "
        f'{FORWARD}: "1" in the model\'s `env`'
    )


def _memory(
    resolved: ResolvedPlan, known: ModelFacts, source: Source, below: Loc
) -> Iterator[Finding]:
    room, model = known.gpus.memory_gb, known.model
    weights, whole = needed_bytes(known)
    if known.gpus.source == "this machine" and not known.gpus.kind:
        what = f"model '{model.name}' needs {_gpus(model)}, but this machine has no visible GPU"
        here = "use a machine with GPUs, `executor: slurm`, or `gpus: 0` for an engine on CPUs"
        yield Finding(source.problem((*below, "gpus"), what, here), certain=False, about="GPUs")
        return
    if known.gpus.count is not None and model.gpus > known.gpus.count:
        what = f"model '{model.name}' needs {_gpus(model)}, but this machine has {known.gpus.count}"
        here = "use a machine with more GPUs, `executor: slurm`, or a smaller model"
        yield Finding(source.problem((*below, "gpus"), what, here), certain=False, about="GPUs")
    if room is None:
        return
    share = stated_share(model)
    each = f"GPUs of {room:.0f} GiB"
    remedy = "use more `gpus`, a smaller or quantised model, or GPUs with more memory"
    shrinks = any(name.replace("-", "_") in SHRINKS for name in model.engine_options)
    if weights is not None and not shrinks:
        fits = room * (share or 1.0)
        if weights > fits * 2**30:
            at = f"{_gib(weights)} of weights on "
            every = model.gpus * model.nodes
            at += f"each of its {every} GPUs" if every > 1 else "its GPU"
            what = f"model '{model.name}' needs {at}, but {known.gpus.source} has {each}"
            what += f", of which the engine may use {percent(share)}" if share is not None else ""
            yield Finding(
                source.problem((*below, "gpus"), what, remedy),
                certain=model.engine in KNOWN,
                about="memory",
            )
            return
        if whole is not None and whole > room * (share or SHARE) * 2**30:
            cache = " and the KV cache of one request" if known.weights.cache_bytes else ""
            what = f"model '{model.name}' needs {_gib(whole)} on each GPU for weights{cache}, but "
            what += f"an engine uses {percent(share or SHARE)} of {each}: it might fail to start"
            yield Finding(
                source.problem((*below, "gpus"), what, f"{remedy}, or a smaller `context_length`"),
                certain=False,
                about="memory",
            )
            return
    if not model.fits_gpu(room):
        what = f"model '{model.name}' asks for {model.gpu_memory_gb:g} GB on each GPU"
        yield Finding(
            source.problem(
                (*below, "gpu_memory_gb"), f"{what}, but {known.gpus.source} has {each}", remedy
            ),
            certain=False,
            about="memory",
        )


def _gpus(model: Model) -> str:
    return f"{model.gpus} GPUs" if model.gpus > 1 else "a GPU"


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def _called(resolved: ResolvedPlan, reference: str | None) -> str:
    """An image's name for people: its definition's name, else its reference without the digest."""
    definition = resolved.images.get(reference or "")
    if definition is not None:
        return f"image '{definition.name}'"
    return (reference or "this Python").partition("@")[0]


def _place(
    resolved: ResolvedPlan, run_task: ResolvedRunTask, plan_file: Path | None
) -> tuple[Source, Loc]:
    """The definition of a model, or its entry in the plan."""
    name = run_task.model.name
    if (file := resolved.origins.get(f"models/{name}")) is not None:
        return _definition(file), ()
    for index, entry in enumerate(resolved.plan.run_tasks):
        own = entry if isinstance(entry, str) else entry.name
        if plan_file is not None and run_task.name.startswith(own):
            return _definition(str(plan_file)), ("run_tasks", index, "model")
    return _definition(str(plan_file) if plan_file is not None else None), ()


# --- in the image, once it is built -----------------------------------------------------------------


def check_images(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """Compare every model with its image, once the image is built.

    Args:
        resolved: the plan.
        prepared: environments by `ResolvedRunTask.environment`.

    Raises:
        UserError: all misfits, each at its place in the model's definition.
    """
    problems = [
        problem
        for run_task in resolved.run_tasks
        for problem in _misfits(resolved, run_task.model, prepared[run_task.environment])
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def check_engines(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """Check that hpcbench's own Python has the engine of every model that runs in it.

    Raises:
        EnvironmentFault: an extra is missing; names the command that adds it.
    """
    for model, environment in {
        one.model.name: (one.model, prepared[one.environment]) for one in resolved.run_tasks
    }.values():
        if environment.kind != "venv" or environment.path != sys.executable:
            continue
        if plugins.find("engines", model.engine) is None:
            continue  # a package adds it only to the engine's environment
        engine = plugins.load("engines", model.engine)
        there = {**environment.versions, **_added(environment)}
        lacking = [name for name in getattr(engine, "needs", ()) if name not in there]
        if lacking:
            add = f", or {install_hint(engine.extra)}" if hasattr(engine, "extra") else ""
            raise EnvironmentFault(
                f"model '{model.name}' has no image, and this Python lacks {', '.join(lacking)}",
                remedy=f"name an image in the model's definition{add}",
            )


def _added(environment: Environment) -> dict[str, str]:
    """Name → version of the distributions that a plan's packages add to an environment."""
    found = metadata_folders(environment.packages) if environment.packages else ()
    return {name: version for name, version, _ in found}


def _misfits(resolved: ResolvedPlan, model: Model, environment: Environment) -> Iterator[Problem]:
    source = _definition(resolved.origins.get(f"models/{model.name}"))
    image = model.image or "this Python"
    for place, line in model.needed.items():
        needed = Requirement(line)
        version = _version(environment, needed.name)
        if version is None:
            what = f"{image} has no {needed.name}, but model '{model.name}' needs {line}"
        elif not needed.specifier.contains(version, prereleases=True):
            what = f"{image} has {needed.name} {version}, but model '{model.name}' needs {line}"
        else:
            continue
        yield source.problem(place, what, "use another image, or another version of it")
    driver, cuda = resolved.site.container.cuda, environment.versions.get("cuda")
    if not (model.gpus and driver and cuda) or resolved.site.container.gpu_maker != "nvidia":
        return
    verdict = cuda_verdict(cuda, driver, forward=asks_for_forward_compatibility(model))
    if verdict == "too old":
        yield source.problem(("image",), *_too_old(cuda, driver, verdict, _called(resolved, image)))


def _version(environment: Environment, name: str) -> str | None:
    """Version of a distribution; an engine's build for CPUs has another name."""
    normal = canonicalize_name(name)
    return environment.versions.get(normal) or environment.versions.get(f"{normal}-cpu")


def _definition(file: str | None) -> Source:
    """The source of a file; a model written inside a plan has no file of its own."""
    try:
        return read(Path(file or ""))
    except UserError:
        return Source(Path(file or "the plan"), None)
