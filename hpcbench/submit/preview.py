"""Preview of a plan without a fetch, a build or a write: the basis of `--dry-run`.

    preview = preview_of(*read_only(plan))

For datasets and models that are not here, the figures of their definitions are used. Without a figure, a
number of samples is assumed and marked as assumed wherever it is shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import plugins, secret
from hpcbench.data.copies import Cache
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.experiment.layout import home
from hpcbench.number_format import percent
from hpcbench.planning import plan_work
from hpcbench.plugins import EngineSpec
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.plan import Measured, ResolvedPlan, ResolvedRunTask, WorkPlan
from hpcbench.submit import Say
from hpcbench.submit.executor_check import unchosen
from hpcbench.submit.image_check import (
    SHARE,
    Finding,
    cuda_verdict,
    judge,
    needed_bytes,
    stated_share,
)
from hpcbench.submit.local_data import in_language
from hpcbench.submit.measure import measure
from hpcbench.submit.plan_facts import (
    Facts,
    ModelFacts,
    Size,
    look,
)
from hpcbench.submit.plan_packages import on_all_gpus
from hpcbench.usage import durations
from hpcbench.usage.durations import Rates

ASSUMED = 1000
"""Assumed samples of a dataset that is not here and whose definition gives no number."""

WIDTH = 80
"""Columns of printed lines."""

SOCKET = "ENGINE.sock"
"""Placeholder for the engine's socket, which is in its own folder on the node."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The known facts about a plan, and their consequences."""

    resolved: ResolvedPlan
    """The plan; datasets and models that are here have a folder of this machine as their source."""
    facts: Facts
    """Sizes, images, GPUs."""
    measured: Measured
    """Measured samples; for a dataset that is not here, its definition's number or an assumed number."""
    unknown: Mapping[str, str]
    """Run task → why its samples were not read, in words that follow their number."""
    assumed: frozenset[str]
    """Run tasks whose number of samples is assumed."""
    findings: tuple[Finding, ...]
    """Misfits of models, images and GPUs."""
    unlocked: tuple[Problem, ...]
    """Missing locks that `prod` requires before it submits."""
    rates: Rates
    """Rates of earlier experiments."""
    work: WorkPlan
    """Groups and shards."""

    def samples(self, run_task: str) -> int | None:
        """Number of samples that a run task asks about; None: unknown."""
        return None if run_task in self.assumed else self.measured.samples[run_task]


def read_only(
    plan: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
) -> tuple[ResolvedPlan, tuple[Problem, ...]]:
    """A plan with its names resolved, and its missing locks; builds no package.

    Raises:
        UserError: every mistake except missing locks.
    """
    try:
        return on_all_gpus(load_plan(plan, registries, settings)), ()
    except UserError as error:
        # A preview needs no locks; missing locks are reported.
        resolved = load_plan(plan, registries, settings, locks=False)
        return on_all_gpus(resolved), error.problems


def preview_of(
    resolved: ResolvedPlan,
    unlocked: tuple[Problem, ...] = (),
    plan_file: Path | None = None,
    say: Say = lambda line: None,
) -> Preview:
    """Measure the data of a plan that is here, and take the rest from definitions. Only reads.

    Raises:
        UserError: data that is here does not match its definition.
    """
    root = home(resolved.site)
    facts = look(resolved, Cache(root / "cache", resolved.site))
    run_tasks = tuple(_here(one, facts, root / "cache") for one in resolved.run_tasks)
    unknown = {one.name: why for one in run_tasks if (why := _unseen(one, facts)) is not None}
    seen = tuple(one for one in run_tasks if one.name not in unknown)
    resolved = resolved.model_copy(update={"run_tasks": run_tasks})
    measured = Measured(samples={}, dataset_hashes={}, model_hashes={})
    if seen:
        part = resolved.model_copy(update={"run_tasks": seen})
        measured = measure(part, hashes=False, say=say)
    counts, assumed = dict(measured.samples), set[str]()
    for one in run_tasks:
        if one.name in unknown:
            stated = _stated(one)
            counts[one.name] = ASSUMED if stated is None else stated
            if stated is None:
                assumed.add(one.name)
                counts[one.name] = max(ASSUMED, _asked_for(one))
    # In the plan's order: `plan_work` and users rely on it.
    counts = {one.name: counts[one.name] for one in run_tasks}
    measured = measured.model_copy(update={"samples": counts})
    rates = durations.rates(root, resolved, measured)
    return Preview(
        resolved,
        facts,
        measured,
        unknown,
        frozenset(assumed),
        (*unchosen(resolved, plan_file), *judge(resolved, facts, plan_file)),
        unlocked,
        rates,
        plan_work(resolved, measured, *rates.for_planning),
    )


def _here(run_task: ResolvedRunTask, facts: Facts, cache: Path) -> ResolvedRunTask:
    found = facts.here[run_task.name]
    update: dict[str, Any] = {"model": facts.models[run_task.name].model}
    if found is not None:
        update["dataset"] = found
    here = run_task.model_copy(update=update)
    return in_language(here, cache) if found is not None else here


def _unseen(run_task: ResolvedRunTask, facts: Facts) -> str | None:
    """Why the samples of a run task cannot be read; None: they can."""
    if facts.here[run_task.name] is None:
        return f"dataset {run_task.dataset.name} is not here yet"
    for kind, name in (
        ("datasets", run_task.dataset.iterator),
        ("prompts", run_task.prompt.strategy),
        ("tasks", run_task.ml_task.plugin),
    ):
        try:
            plugins.load(kind, name)
        except HpcbenchError:
            return f"the package with {name} is not built yet"
    return None


def _stated(run_task: ResolvedRunTask) -> int | None:
    """Maximum number of samples of a run task by its definitions; None: not given."""
    task = run_task.task
    limits = [run_task.dataset.samples, task.limit, task.sample.size if task.sample else None]
    return min((one for one in limits if one is not None), default=None)


def _asked_for(run_task: ResolvedRunTask) -> int:
    """Minimum number of samples that a sweep needs."""
    load = run_task.task.load
    return max(run_task.in_flight or 0, (load.requests or 0) if load is not None else 0)


# --- the engine's command line ----------------------------------------------------------------------


def command_of(preview: Preview, run_task: ResolvedRunTask) -> list[str] | None:
    """The engine's command line for a run task's model; None: its package is not built yet.

    This is this machine's version: the adapter builds the command again in the image, where it can inspect
    the engine. Secrets are masked.
    """
    model = run_task.served
    try:
        engine = plugins.load("engines", model.engine)()
        options = plugins.with_share(engine, model.engine_options, model.gpu_memory_share)
    except HpcbenchError:
        return None
    spec = EngineSpec(
        model.source,
        model.name,
        SOCKET,
        dtype=model.dtype,
        context_length=model.context_length,
        gpus=model.gpus,
        chat_template="CHAT_TEMPLATE" if model.chat_template is not None else None,
        options=options,
        cpus=run_task.task.resources.cpus,
        images=run_task.most_images(preview.measured.images.get(run_task.name, 0)),
        reuse=run_task.agent is not None or preview.measured.reuse.get(run_task.name, False),
    )
    try:
        command = engine.launch_command(spec)
    except HpcbenchError:
        return None
    program, *rest = command.argv
    words = ["python" if "python" in Path(program).name else program, *rest]
    return [secret.mask(word) for word in words]


def wrapped(words: Sequence[str], indent: str) -> Iterator[str]:
    """A command on lines of at most `WIDTH` columns, each but the last ending in a backslash."""
    parts: list[str] = []
    for word in words:
        if (
            parts
            and parts[-1].startswith("--")
            and " " not in parts[-1]
            and not word.startswith("--")
        ):
            parts[-1] += " " + shlex.quote(word)  # an option and its value stay together
        else:
            parts.append(shlex.quote(word))
    line, more = "", indent
    for part in parts:
        if line and len(more) + len(line) + len(part) + 3 > WIDTH:
            yield f"{more}{line} \\"
            line, more = part, indent + "  "
        else:
            line = f"{line} {part}".strip()
    yield f"{more}{line}"


# --- words ------------------------------------------------------------------------------------------


def model_words(known: ModelFacts, container_manager: str) -> Iterator[tuple[str, str]]:
    """The known facts about a model, its image and its GPUs: titles and texts."""
    model, image, gpus = known.model, known.image, known.gpus
    if model.source:
        yield "weights", _to("fetch", known.size)
    if image.reference is not None and not image.reference.startswith("venv:"):
        name = image.reference.partition("@")[0].removeprefix("docker://")
        yield "image", f"{name}: {_to('fetch and build', image.size)}"
    if known.elsewhere:
        yield "GPUs", f"those of {container_manager}, not of this site"
        return
    if not model.gpus:
        return
    yield "CUDA", _cuda_words(known)
    yield "memory", _need_words(known)
    share = stated_share(model)
    room = f"{gpus.memory_gb:.0f} GiB each" if gpus.memory_gb is not None else "unknown memory"
    used = "" if gpus.memory_gb is None else f", of which {percent(share or SHARE)} for the engine"
    used += "" if share is not None or gpus.memory_gb is None else " (assumed)"
    kind = f" {gpus.kind}" if gpus.kind else ""
    yield "GPUs", f"{model.gpus} ×{kind or ' of any type'}, {room}{used}"


def _cuda_words(known: ModelFacts) -> str:
    image, gpus = known.image, known.gpus
    built = f"{image.cuda} ({image.cuda_source})" if image.cuda else "unknown until it is built"
    driver = f", driver {gpus.driver}" if gpus.driver else ""
    takes = f"{gpus.cuda}{driver}" if gpus.cuda else "unknown (set `container.cuda`)"
    verdict = ""
    if image.cuda and gpus.cuda:
        words = {"runs": "fits", "forward": "forward compatibility only", "too old": "too old"}
        verdict = f" → {words[cuda_verdict(image.cuda, gpus.cuda, forward=False)]}"
    return f"image {built}; site {takes}{verdict}"


def _need_words(known: ModelFacts) -> str:
    alone, whole = needed_bytes(known)
    stated = known.model.gpu_memory_gb
    asks = f"; its definition asks for {stated:g} GB" if stated is not None else ""
    if alone is None or whole is None:
        return f"unknown{asks}"
    cache = f" + {(whole - alone) / 2**30:.1f} GiB of KV cache" if whole > alone else ""
    return f"{alone / 2**30:.1f} GiB of weights{cache} on each GPU{asks}"


def size_words(found: Size) -> str:
    """`here, 16.6 GB`; if not here, `about 16.6 GB (its definition)` or `size unknown`."""
    figure = size(found.bytes) if found.bytes else ""
    if found.here:
        return f"here, {figure}" if figure else "here"
    return f"about {figure} ({found.source})" if figure else "size unknown"


def _to(verb: str, found: Size) -> str:
    return size_words(found) if found.here else f"to {verb}, {size_words(found)}"


def size(count: float) -> str:
    """`12 kB`, `3.4 GB`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def facts_json(preview: Preview) -> dict[str, Any]:
    """The known facts besides work and samples, for programs."""

    def of(found: Size) -> dict[str, Any]:
        whole = round(found.bytes) if found.bytes is not None else None
        return {"here": found.here, "bytes": whole, "source": found.source}

    models: dict[str, Any] = {}
    for run_task in preview.resolved.run_tasks:
        known = preview.facts.models[run_task.name]
        alone, whole = needed_bytes(known)
        models[run_task.name] = {
            "model": known.model.name,
            "weights": of(known.size),
            "image": {
                "reference": known.image.reference,
                **of(known.image.size),
                "cuda": known.image.cuda,
                "cuda_source": known.image.cuda_source,
            },
            "gpus": {
                "count": known.model.gpus,
                "type": known.gpus.kind,
                "memory_gb": known.gpus.memory_gb,
                "cuda": known.gpus.cuda,
                "driver": known.gpus.driver,
            },
            "needs_bytes": {"weights": alone, "with_cache": whole},
            "command": command_of(preview, run_task),
        }
    return {
        "unknown_samples": dict(preview.unknown),
        "assumed_samples": sorted(preview.assumed),
        "datasets": {name: of(found) for name, found in preview.facts.datasets.items()},
        "models": models,
        "refused": [str(one.problem) for one in preview.findings if one.certain],
        "warnings": [
            *(str(one.problem) for one in preview.findings if not one.certain),
            *(str(problem) for problem in preview.unlocked),
        ],
    }
