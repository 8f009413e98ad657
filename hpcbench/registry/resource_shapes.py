"""Resources that a job of a model requests, checked for consistency and against the partition's limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import unknown
from hpcbench.registry.source import Loc
from hpcbench.schema.model import Model, Parallel, option_name
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.shared_types import Resources, seconds
from hpcbench.schema.site import Partition, Site

TENSOR = ("tensor_parallel_size", "tp_size", "tp")
"""Engine options for the number of GPUs that share each layer; default `gpus`."""

PIPELINE = ("pipeline_parallel_size", "pp_size", "pp")
"""Engine options for the number of parts that a model's layers are split into."""

DATA = ("data_parallel_size", "dp_size", "dp")
"""Engine options for the number of parallel copies of a model."""

WARNED_EARLY = 30
"""Slurm looks every half minute, so its warning of a time limit comes up to these seconds too early."""

_OTHER = "request less, or another `partition`"
_FEWER = "lower the model's `replicas_per_node`, or request less for each"
_ORDER = "list the shapes from the smallest to the largest"

Finding = tuple[Loc, str, str | None]
"""Place in the definition, problem, remedy."""


def option_of(model: Model, names: Sequence[str]) -> Any:
    """A model's engine option under one of several names, with `-` or `_`; None: not set."""
    name = option_name(model.engine_options, *names)
    return None if name is None else model.engine_options[name]


@dataclass(frozen=True, slots=True)
class Shape:
    """Resources that a job may request."""

    gpus: int
    memory_gb: float | None
    """None: not given here."""
    gpu_type: str | None
    """None: the site's."""

    def within(self, other: Shape) -> bool:
        """Whether it requests no more than another shape."""
        memory = self.memory_gb or 0
        return (
            self.gpus <= other.gpus
            and memory <= (other.memory_gb if other.memory_gb is not None else -math.inf)
            and self.gpu_type == other.gpu_type
        )


def shapes(model: Model, gpus: int, memory_gb: float | None, gpu_type: str | None) -> list[Shape]:
    """The first shape of a model's job, then its larger ones; a missing value is the previous shape's."""
    found = [Shape(gpus, memory_gb, gpu_type)]
    for larger in model.larger:
        last = found[-1]
        found.append(
            Shape(
                larger.gpus or last.gpus,
                larger.memory_gb or last.memory_gb,
                larger.gpu_type or last.gpu_type,
            )
        )
    return found


def model_findings(model: Model, gpus: int) -> Iterator[Finding]:
    """Impossible values in the shape of a model's definition.

    Args:
        model: the definition.
        gpus: GPUs that it needs.
    """
    yield from _split(model, gpus)
    yield from _parallel(model, gpus)
    if model.gpu_memory_share is not None and (gpus != 1 or spread(model, gpus).nodes > 1):
        what = f"engines that share a GPU have one each, but the model has `gpus: {gpus}`"
        yield ("gpu_memory_share",), what, "set `gpus: 1`, or remove `gpu_memory_share`"
    elif model.gpu_memory_share is not None and any(one.gpus for one in model.larger):
        what = "larger shapes with more GPUs are for engines that share none"
        yield ("larger",), what, "remove `gpus` from the shapes, or `gpu_memory_share`"
    last = Shape(gpus, None, None)
    for number, shape in enumerate(shapes(model, gpus, None, None)[1:]):
        loc: Loc = ("larger", number)
        said = model.larger[number]
        if said.gpus is not None and said.gpus < last.gpus:
            fewer = f"{said.gpus} GPUs are fewer than the {last.gpus} of the shape before"
            yield (*loc, "gpus"), fewer, _ORDER
        elif said.memory_gb and last.memory_gb and said.memory_gb < last.memory_gb:
            less = (
                f"{said.memory_gb:g} GiB are less than the {last.memory_gb:g} of the shape before"
            )
            yield (*loc, "memory_gb"), less, _ORDER
        elif shape == last:
            yield (
                loc,
                "is no larger than the shape before",
                "raise `gpus` or `memory_gb`, or name another `gpu_type`",
            )
        last = shape


def too_short(limit: float, site: Site) -> tuple[str, str] | None:
    """Problem and remedy if a worker with this time limit, in seconds, would have to drain as it starts."""
    lost = site.slurm.drain_seconds + WARNED_EARLY
    if limit // 60 * 60 > lost:
        return None
    what = (
        f"workers drain {site.slurm.drain_seconds} s before their time limit, and Slurm may warn them "
        f"{WARNED_EARLY} s earlier: {limit:g} s leave no time to work"
    )
    least = lost // 60 + 1
    remedy = f"at least {least} minutes, or a smaller `slurm.drain_seconds` in the site profile"
    return what, remedy


def misfits(resolved: ResolvedRunTask, site: Site) -> Iterator[tuple[str, Loc, str, str | None]]:
    """Requests of a worker that the site does not satisfy: key, place below it, problem, remedy.

    A partition that the profile does not describe is not checked.
    """
    need, model = resolved.task.resources, resolved.model
    if short := too_short(seconds(need.time_limit), site):
        yield "resources", ("time_limit",), *short
    name = need.partition or site.slurm.partition
    if not site.slurm.partitions or name is None:
        return
    partition = site.slurm.partition_of(need)
    if partition is None:
        what = unknown("partition", name, site.slurm.partitions)
        yield "resources", ("partition",), what, "`hpcbench init --force` asks Slurm again"
        return
    of = f"partition '{name}'"
    if partition.nodes is not None and model.nodes > partition.nodes:
        what = f"{of} has {partition.nodes} nodes, but model '{model.name}' needs {model.nodes}"
        yield "model", (), what, "use more GPUs of each node, or another `partition`"
    limit = partition.time_limit
    if limit is not None and seconds(need.time_limit) > seconds(limit):
        what = f"{of} allows at most {limit}, not {need.time_limit}"
        yield "resources", ("time_limit",), what, _OTHER
    replicas = model.replicas_per_node or 1
    for key, most in (("cpus", partition.cpus), ("memory_gb", partition.memory_gb)):
        asked = getattr(need, key)
        if most is not None and asked > most:
            yield "resources", (key,), f"{of} has at most {key}: {most:g}, not {asked:g}", _OTHER
        elif most is not None and asked * replicas > most:
            what = f"{of} has at most {key}: {most:g}, but {replicas} engines of '{model.name}' "
            yield "model", (), what + f"on a node need {asked * replicas:g}", _FEWER
    first, *larger = shapes(model, model.gpus, need.memory_gb, site.slurm.gpu_type(need))
    if model.gpus:
        yield from _gpus(model, first, partition, of)
    for number, shape in enumerate(larger, 1):
        yield from _larger(model, number, shape, first, partition, of)


def asked_split(model: Model) -> Parallel | None:
    """How a model is to be split: its `parallel`, else the sizes in its engine's options; None: neither."""
    if model.parallel is not None:
        return model.parallel
    sizes = {key: value for key, _, value in _sizes(model)}
    return Parallel.model_validate(sizes) if sizes else None


def spread(model: Model, gpus: int, most_gpus: int | None = None) -> Model:
    """The model with its split, its number of nodes and its GPUs on each of them; a plain one is unchanged.

    Wrong combinations, which `model_findings` reports, are left as they are.

    Args:
        model: the definition.
        gpus: GPUs that it needs.
        most_gpus: GPUs of the largest node it may get; None: not known.
    """
    if model.nodes == 1 and model.parallel is None:
        return model.model_copy(update={"gpus": gpus})
    split = asked_split(model) or Parallel(tensor=max(1, gpus), pipeline=model.nodes)
    nodes, ranks = model.nodes, split.ranks
    if "gpus" not in model.model_fields_set:
        if "nodes" not in model.model_fields_set and most_gpus:
            fitting = (n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most_gpus)
            nodes = next(fitting, 1)
        gpus = ranks // nodes if ranks % nodes == 0 else gpus
    elif "nodes" not in model.model_fields_set and gpus and ranks % gpus == 0:
        nodes = ranks // gpus
    return model.model_copy(update={"gpus": gpus, "nodes": nodes, "parallel": split})


def replicated(model: Model, need: Resources, site: Site | None) -> Model:
    """The model with its number of engines in a job: its own, else those that fill a whole node, else one.

    Args:
        model: the definition, see `spread`.
        need: what a worker requests.
        site: the cluster; None: this machine.
    """
    replicas = model.replicas_per_node or max(
        model.engines_per_gpu, most_engines(model, need, site)
    )
    return model.model_copy(update={"replicas_per_node": replicas})


def most_engines(model: Model, need: Resources, site: Site | None) -> int:
    """Engines of a model in a job: those that fill a node where jobs get whole nodes, else one.

    Args:
        model: the definition, see `spread`.
        need: what a worker requests.
        site: the cluster; None: this machine.
    """
    partition, gpus = site.slurm.partition_of(need) if site else None, largest_node(need, site)
    if partition is None or not partition.whole_nodes or model.nodes > 1 or not model.source:
        return 1
    room = [gpus // model.gpus * model.engines_per_gpu] if gpus and model.gpus else []
    room += [partition.cpus // need.cpus] if partition.cpus else []
    room += [int(partition.memory_gb / need.memory_gb)] if partition.memory_gb else []
    if model.gpus and not gpus:
        return 1
    return max(1, min(room, default=1))


def largest_node(need: Resources, site: Site | None) -> int | None:
    """GPUs of the largest node that a job may get; None: not known."""
    partition = site.slurm.partition_of(need) if site else None
    return partition.most_gpus(site.slurm.gpu_type(need)) if site and partition else None


def _sizes(model: Model) -> Iterator[tuple[str, str, int]]:
    """Parallel sizes in the engine's options: field of `parallel`, the option as it is written, value."""
    options = {name.replace("-", "_"): name for name in model.engine_options}
    for field, names in (("tensor", TENSOR), ("pipeline", PIPELINE), ("data", DATA)):
        for written in (options[name] for name in names if name in options):
            value = model.engine_options[written]
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                yield field, written, value


def _split(model: Model, gpus: int) -> Iterator[Finding]:
    """Contradictions between `parallel`, `nodes`, `gpus` and the engine's options."""
    if model.nodes == 1 and model.parallel is None:
        return
    if model.parallel is not None:
        for field, written, value in _sizes(model):
            said = getattr(model.parallel, field)
            if value != said:
                what = (
                    f"`parallel` has {field}: {said}, but the engine option '{written}' is {value}"
                )
                yield ("engine_options", written), what, "remove the option: `parallel` sets it"
                return
    split = asked_split(model) or Parallel(tensor=max(1, gpus), pipeline=model.nodes)
    said_gpus = "gpus" in model.model_fields_set and gpus > 0
    nodes = model.nodes if "nodes" in model.model_fields_set else 1
    product = f"tensor {split.tensor} × pipeline {split.pipeline} × data {split.data}"
    at: Loc = ("parallel",) if model.parallel is not None else ("nodes",)
    if split.ranks % nodes:
        what = f"{product} is {split.ranks}, which {nodes} nodes cannot share equally"
        yield at, what, "change `nodes` or the sizes so that each node has as many GPUs"
    elif said_gpus and split.ranks % gpus:
        what = (
            f"{product} is {split.ranks} GPUs, which is no multiple of `gpus: {gpus}` of each node"
        )
        yield at, what, "change `gpus`, the GPUs of each node, or the sizes"
    elif said_gpus and "nodes" in model.model_fields_set and split.ranks != gpus * nodes:
        what = f"{product} is {split.ranks} GPUs, but {nodes} × {gpus} are {gpus * nodes}"
        yield at, what, "change the sizes, `nodes`, or `gpus`, the GPUs of each node"
    several = spread(model, gpus).nodes > 1
    if model.larger and several:
        what = "larger shapes are for models of one node"
        yield ("larger",), what, "remove `larger`, and ask for more `nodes`"
    if (model.replicas_per_node or 1) > 1 and several:
        what = "an engine on several nodes has each of them alone"
        yield ("replicas_per_node",), what, "remove `replicas_per_node`, or `nodes`"


def _parallel(model: Model, gpus: int) -> Iterator[Finding]:
    """Parallel sizes in the engine's options against its number of GPUs."""
    sizes = {field: value for field, _, value in _sizes(model)}
    if model.nodes > 1 or model.parallel is not None or not gpus or not sizes:
        return
    tensor = sizes.get("tensor", gpus if "data" not in sizes else 1)
    pipeline, data = sizes.get("pipeline", 1), sizes.get("data", 1)
    for shape in shapes(model, gpus, None, None):
        if shape.gpus in (tensor * pipeline, tensor * pipeline * data):
            continue
        asked = f"tensor parallel {tensor} × pipeline parallel {pipeline}"
        asked += f" × data parallel {data}" if data > 1 else ""
        what = f"{asked} needs {tensor * pipeline * data} GPUs, but the model has {shape.gpus}"
        yield ("engine_options",), what, "set `gpus` to the product, or remove these options"
        return


def _gpus(
    model: Model, shape: Shape, partition: Partition, of: str
) -> Iterator[tuple[str, Loc, str, str | None]]:
    gpus, wanted = partition.gpus, shape.gpu_type
    if gpus is None:
        return
    if not gpus:
        yield "model", (), f"{of} has no GPU, but model '{model.name}' needs one", _OTHER
        return
    if wanted and wanted not in gpus:
        what = unknown("GPU type", wanted, gpus, of=of)
        yield "resources", ("gpu_type",), what, None
        return
    types = [wanted] if wanted else list(gpus)
    most = partition.most_gpus(wanted) or 0
    replicas = model.replicas_per_node or 1
    if shape.gpus > most:
        what = f"{of} has {most} GPUs on a node, but model '{model.name}' needs {shape.gpus} on one node"
        yield "model", (), what, _OTHER
    elif (all_gpus := math.ceil(shape.gpus * replicas / model.engines_per_gpu)) > most:
        what = f"{of} has {most} GPUs on a node, but {replicas} engines of '{model.name}' need "
        yield "model", (), what + f"{all_gpus}", _FEWER
    room = max((partition.gpu_memory_gb.get(one, math.inf) for one in types), default=math.inf)
    if not model.fits_gpu(room):
        what = f"{of} has GPUs of {room:g} GiB, but model '{model.name}' needs "
        remedy = "use more `gpus`, a smaller or quantised model, or another partition"
        yield "model", (), what + f"{model.gpu_memory_gb:g} GB on each", remedy


def _larger(
    model: Model, number: int, shape: Shape, first: Shape, partition: Partition, of: str
) -> Iterator[tuple[str, Loc, str, str | None]]:
    whose = f"larger shape {number} of model '{model.name}'"
    if shape.within(first):
        what = f"{whose} is no larger than the run task's own resources, {first.memory_gb:g} GiB"
        yield (
            "model",
            (),
            what,
            "raise `memory_gb` in the model, or lower it in `resources`",
        )
    if partition.memory_gb is not None and (shape.memory_gb or 0) > partition.memory_gb:
        what = f"{of} has at most memory_gb: {partition.memory_gb:g}, not the {shape.memory_gb:g} of {whose}"
        yield "model", (), what, _OTHER
    gpus = partition.gpus
    if not gpus or not shape.gpus:
        return
    if shape.gpu_type and shape.gpu_type not in gpus:
        yield "model", (), f"{whose}: {unknown('GPU type', shape.gpu_type, gpus)}", None
        return
    most = partition.most_gpus(shape.gpu_type) or 0
    if shape.gpus > most:
        what = f"{of} has {most} GPUs on a node, not the {shape.gpus} of {whose}"
        yield "model", (), what, _OTHER
