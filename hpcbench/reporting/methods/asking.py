"""How models were asked: images, decoding, load and hardware of a methods section."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from hpcbench import number_format as form
from hpcbench.experiment.view.performance_json import Load, Machine
from hpcbench.reporting.methods.facts import Facts, MethodsLine, Missing, joined
from hpcbench.schema.agent import Agent
from hpcbench.schema.plan import ResolvedRunTask

AT_AN_ENDPOINT = frozenset({"remote"})
"""Engines that pass requests on: the machine of their worker is not the machine of the model."""

SCALING_OPTIONS = ("mm_processor_kwargs", "processor", "mode")
"""Engine options that may change how the model's processor scales images: those of vLLM and SGLang, the
Hugging Face engine and DeepSeek-OCR."""


def images(facts: Facts) -> Iterator[MethodsLine]:
    """How page images were sent, and what scaled them."""
    if facts.imported is not None:
        yield Missing("How images of the imported answers were sent and scaled.")
        return
    yield from facts.grouped({one.name: joined(_images(facts, one)) for one in facts.run_tasks})
    for one in facts.run_tasks:
        if one.ml_task.module is not None or not _sees_pages(one):
            continue
        if one.model.engine in AT_AN_ENDPOINT:
            yield Missing(f"How the endpoint of run task {one.name} scales images.")
        elif one.served.max_pixels is None and not _recorded(facts, one) and not _options(one):
            yield Missing(
                f"The sizes to which the processor of model {one.model.name} scales images."
            )


def _sees_pages(run_task: ResolvedRunTask) -> bool:
    """Whether its requests hold images of pages: a judge may do without."""
    return run_task.task.judge is None or run_task.task.judge.pages


def _images(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    if run_task.ml_task.module is not None:
        yield f"the module `{run_task.ml_task.module}` decides which images it sends, and in which size"
        return
    if not _sees_pages(run_task):
        yield "no image was sent"
        return
    most = facts.experiment.measured.images.get(run_task.name)
    yield f"at most {form.many(most, 'image')} in a request" if most else ""
    yield "image files unchanged, byte for byte"
    dpi = run_task.dataset.options.get("dpi")
    resolution = f"{dpi} dpi" if dpi else "the default resolution of the dataset's iterator"
    yield f"pages of PDF files, where the dataset has them, rendered at {resolution}"
    yield _sent(facts, run_task)
    if run_task.agent is not None:
        yield "tools of the agent may add images, in the size in which they make them"
    yield f"scaled by the model's own processor only{_scaling(facts, run_task)}"
    if options := _options(run_task):
        yield f"settings of the engine for it: `{json.dumps(options, ensure_ascii=False)}`"


def _sent(facts: Facts, run_task: ResolvedRunTask) -> str:
    if run_task.task.images == "file":
        return "read by the engine from the files that requests name"
    speed = facts.speed(run_task.name)
    protocol = run_task.task.protocol if speed is None else speed.load.protocol
    return "sent as bytes beside the request" if protocol == "grpc" else "sent as data URIs"


def _recorded(facts: Facts, run_task: ResolvedRunTask) -> Mapping[str, JsonValue]:
    """Settings of the processor beside the weights; empty: unknown."""
    return facts.experiment.measured.image_processing.get(run_task.model.name, {})


def _scaling(facts: Facts, run_task: ResolvedRunTask) -> str:
    if recorded := _recorded(facts, run_task):
        return f", with `{json.dumps(recorded, ensure_ascii=False)}` in its configuration"
    model = run_task.served
    limits = [
        f"{name} {value} pixels"
        for name, value in (("smallest", model.min_pixels), ("largest", model.max_pixels))
        if value is not None
    ]
    return f" (limits by the model's definition: {', '.join(limits)})" if limits else ""


def _options(run_task: ResolvedRunTask) -> dict[str, Any]:
    """Settings of the processor in the engine's options and in each request."""
    settings = {**run_task.served.engine_options, **run_task.task.generation.extra}
    return {name: settings[name] for name in SCALING_OPTIONS if name in settings}


def decoding(facts: Facts) -> Iterator[MethodsLine]:
    """Settings of generation, and how answers were read."""
    if facts.imported is not None:
        yield Missing("The decoding parameters of the imported answers.")
    texts = {one.name: joined(_decoding(facts, one)) for one in facts.run_tasks}
    yield from facts.grouped(texts)


def _decoding(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    task, ml_task = run_task.task, run_task.ml_task
    if ml_task.module is not None:
        yield f"answered by the module `{ml_task.module}`, which decides what it asks the model"
    if run_task.agent is not None:
        yield _agent(run_task.agent)
    if facts.imported is None:
        generation = task.generation
        greedy = " (greedy)" if generation.temperature == 0 else ""
        yield f"temperature {generation.temperature:g}{greedy}, top_p {generation.top_p:g}"
        yield f"at most {generation.max_tokens} tokens per answer"
        yield "no seed" if generation.seed is None else f"seed {generation.seed}"
        if generation.stop:
            yield f"stop texts `{json.dumps(list(generation.stop), ensure_ascii=False)}`"
        if generation.extra:
            yield f"engine settings `{json.dumps(dict(generation.extra), ensure_ascii=False)}`"
        yield f"at most {task.request_timeout:g} s per answer over all tries"
    parsers = {one.reading for one in facts.scores[run_task.name].values.values() if one.reading}
    yield f"answers read as {ml_task.output} for ML task {ml_task.name}" + (
        f" by parser `{', '.join(sorted(parsers))}`" if parsers else ""
    )
    yield {
        "strip": "reasoning before the answer removed",
        "keep": "reasoning kept as part of the answer",
    }[ml_task.reasoning]
    if ml_task.output == "object":
        yield {
            "mark": "damaged JSON repaired and marked",
            "refuse": "damaged JSON counted as unreadable",
        }[ml_task.repair]


def _agent(agent: Agent) -> str:
    """Tools and limits of an agent."""
    names = [one if isinstance(one, str) else one.name for one in agent.tools]
    tools = ", ".join(f"`{name}`" for name in names) or "no tool"
    limits = agent.limits
    tokens = f", {limits.tokens} tokens" if limits.tokens is not None else ""
    several = f" as {len(agent.agents)} agents" if agent.agents else ""
    named = " and ".join(f"`{name}`" for name in agent.models_of)
    models = f" and the model of {named}" if named else ""
    times = "".join(
        f", {seconds:g} s if `{limits.seconds_by}` is {kind}"
        for kind, seconds in limits.seconds_of.items()
    )
    return (
        f"worked in turns{several} with {tools}{models}, at most {limits.calls} calls{tokens} and "
        f"{limits.seconds:g} s a sample{times}"
    )


def load(facts: Facts) -> Iterator[MethodsLine]:
    """Requests in flight, and the machines, as the workers recorded them."""
    if facts.imported is not None:
        yield Missing("Load, times and hardware of the imported answers.")
        return
    yield from facts.grouped({one.name: joined(_load(facts, one)) for one in facts.run_tasks})
    for one in facts.run_tasks:
        yield from _unknown_of(facts, one)


def _load(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    speed = facts.speed(run_task.name)
    if speed is None:
        return
    yield from _requests(speed.load, run_task)
    if run_task.model.engine in AT_AN_ENDPOINT:
        yield "the model ran behind an endpoint"
    else:
        for machine in speed.hardware or ():
            yield ", ".join(_machine(machine))
    if not speed.valid:
        yield "the client was too slow, so times and rates are not the engine's"


def _requests(settings: Load, run_task: ResolvedRunTask) -> Iterator[str]:
    if settings.rate is not None:
        arrival = f" with {settings.arrival} arrivals" if settings.arrival else ""
        yield f"{settings.rate:g} requests per second and worker{arrival}"
    elif settings.at_once is not None:
        auto = " (chosen by `concurrency: auto`)" if run_task.task.concurrency == "auto" else ""
        flight = settings.at_once
        count = form.many(flight, "request") if isinstance(flight, int) else f"{flight} requests"
        yield f"{count} in flight per worker{auto}"
    if settings.warm_up:
        yield f"{form.many(settings.warm_up, 'warm-up request')}, not counted"
    if run_task.ml_task.module is None:
        yield _way(settings)


_PROTOCOLS = {"http": "HTTP", "grpc": "gRPC"}

_ROUTES = {
    "direct": "to the engine's own socket",
    "proxied": "through hpcbench's wrapper before the engine",
    "direct and proxied": "partly to the engine's own socket and partly through hpcbench's wrapper",
}


def _way(settings: Load) -> str:
    """Protocol and route of the requests; speed is only compared within both."""
    protocol = _PROTOCOLS.get(settings.protocol, settings.protocol)
    return (
        f"requests sent over {protocol} {_ROUTES.get(settings.route, f'by route {settings.route}')}"
    )


def _machine(one: Machine) -> Iterator[str]:
    yield form.many(one.workers, "worker")
    if one.gpus:
        counted = {gpu: one.gpus.count(gpu) for gpu in one.gpus}
        yield f"each with {' and '.join(f'{n} × {gpu}' for gpu, n in counted.items())}"
    elif one.gpus is not None:
        yield "no GPU for the model"
    if one.nodes_each > 1:
        yield f"{one.nodes_each} nodes for each engine"
    if one.engines_each > 1:
        yield f"{one.engines_each} engines in each job"
    if one.engines_per_gpu > 1:
        yield f"{one.engines_per_gpu} engines on each GPU"
    yield from (
        f"{name} {value}"
        for name, value in (("driver", one.driver), ("CUDA", one.cuda), ("CPU", one.cpu))
        if value
    )


def _unknown_of(facts: Facts, run_task: ResolvedRunTask) -> Iterator[Missing]:
    speed = facts.speed(run_task.name)
    if speed is None:
        yield Missing(f"Load and hardware of run task {run_task.name}.")
        return
    if run_task.model.engine in AT_AN_ENDPOINT:
        yield Missing(f"The hardware behind the endpoint of run task {run_task.name}.")
    elif not speed.hardware:
        yield Missing(f"The hardware of run task {run_task.name}: a worker did not report it.")
    for one in speed.hardware or ():
        if one.gpus is None:
            yield Missing(f"The GPUs of run task {run_task.name}.")
        elif one.gpus and not one.driver and run_task.model.engine not in AT_AN_ENDPOINT:
            yield Missing(f"The GPU driver of run task {run_task.name}.")
    if speed.load.rate is None and not isinstance(speed.load.at_once, (int, str)):
        yield Missing(f"The requests in flight of run task {run_task.name}.")
    elif speed.load.at_once == "auto":
        yield Missing(f"The number that `concurrency: auto` chose for run task {run_task.name}.")
