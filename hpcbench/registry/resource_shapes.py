"""What a job of a model asks for, against itself and against what the partition gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.errors import unknown
from hpcbench.registry.source import Loc
from hpcbench.schema.documents import Model, Partition, Site, seconds
from hpcbench.schema.plan import ResolvedRunTask

TENSOR = ("tensor_parallel_size", "tp_size", "tp")
"""What engines call the GPUs that share each layer; `gpus` unless it is said."""

PIPELINE = ("pipeline_parallel_size", "pp_size", "pp")
"""What they call the parts that a model's layers are cut into."""

DATA = ("data_parallel_size", "dp_size", "dp")
"""What they call copies of a model beside each other."""

Finding = tuple[Loc, str, str | None]
"""Where in the document, what is wrong, what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job may ask for."""

    gpus: int
    memory_gb: float | None
    """None: not said here."""
    gpu_type: str | None
    """None: the site's."""

    def within(self, other: Shape) -> bool:
        """Whether it asks for no more than another."""
        memory = self.memory_gb or 0
        return (
            self.gpus <= other.gpus
            and memory <= (other.memory_gb if other.memory_gb is not None else -math.inf)
            and self.gpu_type == other.gpu_type
        )


def shapes(model: Model, gpus: int, memory_gb: float | None, gpu_type: str | None) -> list[Shape]:
    """The first shape of a model's job, then its larger ones; what one does not say is as before."""
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
    """What a model's document says of its shape that cannot be.

    Args:
        model: the document.
        gpus: GPUs that it needs.
    """
    if model.nodes > 1:
        what = f"model '{model.name}' wants {model.nodes} nodes, and an engine runs on one node: "
        remedy = "`gpus` of one node, and let the engine share the model among them"
        yield ("nodes",), what + "several nodes are not supported yet", remedy
    yield from _parallel(model, gpus)
    last = Shape(gpus, None, None)
    for number, shape in enumerate(shapes(model, gpus, None, None)[1:]):
        loc: Loc = ("larger", number)
        said = model.larger[number]
        if said.gpus is not None and said.gpus < last.gpus:
            yield (*loc, "gpus"), f"{said.gpus} GPUs are fewer than the {last.gpus} before", None
        elif said.memory_gb and last.memory_gb and said.memory_gb < last.memory_gb:
            less = f"{said.memory_gb:g} GiB are less than the {last.memory_gb:g} before"
            yield (*loc, "memory_gb"), less, None
        elif shape == last:
            yield (
                loc,
                "is no larger than the shape before",
                "more `gpus`, `memory_gb`, or a `gpu_type`",
            )
        last = shape


def misfits(resolved: ResolvedRunTask, site: Site) -> Iterator[tuple[str, Loc, str, str | None]]:
    """What a worker asks for and the partition does not give: key, place below it, what, remedy.

    A partition that the profile does not describe is not looked at.
    """
    need, model = resolved.task.resources, resolved.model
    name = need.partition or site.slurm.partition
    if not site.slurm.partitions or name is None:
        return
    partition = site.slurm.partitions.get(name)
    if partition is None:
        what = unknown("partition", name, site.slurm.partitions)
        yield "resources", ("partition",), what, "`hpcbench init --force` looks again"
        return
    gives = f"partition '{name}' gives"
    limit = partition.time_limit
    if limit is not None and seconds(need.time_limit) > seconds(limit):
        yield "resources", ("time_limit",), f"{gives} at most {limit}, not {need.time_limit}", None
    for key, most in (("cpus", partition.cpus), ("memory_gb", partition.memory_gb)):
        asked = getattr(need, key)
        if most is not None and asked > most:
            yield "resources", (key,), f"{gives} {key} {most:g} at most, not {asked:g}", None
    usual = site.slurm.gpu_gres.partition(":")[2] or None
    first, *larger = shapes(model, model.gpus, need.memory_gb, need.gpu_type or usual)
    if model.gpus:
        yield from _gpus(model, first, partition, gives)
    for number, shape in enumerate(larger, 1):
        yield from _larger(model, number, shape, first, partition, gives)


def _parallel(model: Model, gpus: int) -> Iterator[Finding]:
    """Sizes that an engine is told against the GPUs it gets."""
    options = {name.replace("-", "_"): name for name in model.engine_options}
    nodes = options.get("nnodes")
    if nodes is not None and model.engine_options[nodes] not in (1, None):
        what = "an engine runs on one node: several nodes are not supported yet"
        yield ("engine_options", nodes), what, "leave it out"
    sizes: dict[str, int] = {}
    for names in (TENSOR, PIPELINE, DATA):
        for written in (options[name] for name in names if name in options):
            value = model.engine_options[written]
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                sizes[names[0]] = value
    if not gpus or not sizes:
        return
    tensor = sizes.get(TENSOR[0], gpus if DATA[0] not in sizes else 1)
    pipeline, data = sizes.get(PIPELINE[0], 1), sizes.get(DATA[0], 1)
    for shape in shapes(model, gpus, None, None):
        if shape.gpus in (tensor * pipeline, tensor * pipeline * data):
            continue
        asked = f"tensor parallel {tensor} × pipeline parallel {pipeline}"
        asked += f" × data parallel {data}" if data > 1 else ""
        what = f"{asked} are {tensor * pipeline * data} GPUs, and the model has {shape.gpus}"
        yield ("engine_options",), what, "tensor parallel is `gpus` where neither is said"
        return


def _gpus(
    model: Model, shape: Shape, partition: Partition, gives: str
) -> Iterator[tuple[str, Loc, str, str | None]]:
    gpus, wanted = partition.gpus, shape.gpu_type
    if gpus is None:
        return
    if not gpus:
        yield "model", (), f"{gives} no GPU, and model '{model.name}' needs one", None
        return
    if wanted and wanted not in gpus:
        what = unknown(f"GPU of {gives.removesuffix(' gives')}", wanted, gpus)
        yield "resources", ("gpu_type",), what, None
        return
    types = [wanted] if wanted else list(gpus)
    most = max(gpus[one] for one in types)
    if shape.gpus > most:
        what = (
            f"{gives} {most} GPUs on a node, and model '{model.name}' needs {shape.gpus} on one: "
        )
        yield "model", (), what + "several nodes are not supported", None
    room = max((partition.gpu_memory_gb.get(one, math.inf) for one in types), default=math.inf)
    if model.gpu_memory_gb is not None and model.gpu_memory_gb > room:
        what = f"{gives} GPUs of {room:g} GiB, and model '{model.name}' needs "
        remedy = "more `gpus`, a smaller or quantised model, or another partition"
        yield "model", (), what + f"{model.gpu_memory_gb:g} GiB on each", remedy


def _larger(
    model: Model, number: int, shape: Shape, first: Shape, partition: Partition, gives: str
) -> Iterator[tuple[str, Loc, str, str | None]]:
    whose = f"larger shape {number} of model '{model.name}'"
    if shape.within(first):
        what = f"{whose} asks for no more than the run task itself: {first.memory_gb:g} GiB"
        yield (
            "model",
            (),
            what,
            "a larger `memory_gb` in the model, or a smaller one in `resources`",
        )
    if partition.memory_gb is not None and (shape.memory_gb or 0) > partition.memory_gb:
        what = f"{gives} memory_gb {partition.memory_gb:g} at most, not the {shape.memory_gb:g} of {whose}"
        yield "model", (), what, None
    gpus = partition.gpus
    if not gpus or not shape.gpus:
        return
    if shape.gpu_type and shape.gpu_type not in gpus:
        yield "model", (), f"{whose}: {unknown('GPU', shape.gpu_type, gpus)}", None
        return
    most = gpus[shape.gpu_type] if shape.gpu_type else max(gpus.values())
    if shape.gpus > most:
        yield "model", (), f"{gives} {most} GPUs on a node, not the {shape.gpus} of {whose}", None
