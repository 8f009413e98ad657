"""Facts about a plan before any fetch: from definitions, caches and this machine.

This module writes, fetches and builds nothing and uses no network: facts without a source stay unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from hpcbench import environments
from hpcbench.data.copies import Cache
from hpcbench.data.hub import WEIGHTS
from hpcbench.environments.images import BuiltImage, built_images
from hpcbench.environments.packages import Probe
from hpcbench.registry.resource_shapes import DATA, option_of
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.shared_types import Resources
from hpcbench.schema.site import Site

WALKED = 100_000
"""The sizes of a folder with more files than this are not added up."""

BYTES_OF = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}
"""`dtype` → bytes of a parameter in memory."""

_CUDA_OF_TAG = re.compile(r"(?:^|[^a-z0-9])cu(?:da)?[-_]?(\d{2})[.]?(\d)(?!\d)", re.IGNORECASE)
"""Pattern of `-cu129`, `cuda12.4` in the name of an image."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of files that are here, or have to be fetched."""

    here: bool
    """Whether the files are on this machine."""
    bytes: float | None
    """Bytes of the files; None: unknown."""
    source: str = ""
    """Source of the figure, for people; empty: the files."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """The known facts about an image."""

    reference: str | None
    """Reference of the image; None: this Python."""
    size: Size
    cuda: str | None = None
    """CUDA that its programs are built for; None: unknown, or none."""
    cuda_source: str = ""
    """`the built image`, `its definition`, `its name`, `this Python`."""

    @property
    def certain(self) -> bool:
        """Whether its CUDA is known, not guessed from a name."""
        return self.cuda is not None and self.cuda_source != "its name"


@dataclass(frozen=True, slots=True)
class Weights:
    """GPU memory that a model takes, without the engine's own memory."""

    bytes: float | None
    """Bytes of its weights; None: unknown."""
    source: str = ""
    """Source of that figure."""
    cache_bytes: float | None = None
    """Bytes of the KV cache of one request with a full context; None: the model's config is not here."""
    copies: int = 1
    """Parallel copies of the model (data parallel): each has its own weights."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that a model's jobs would get, as far as known from the site profile or this machine."""

    memory_gb: float | None = None
    """Memory of each GPU, GiB; for several types, the largest."""
    kind: str = ""
    """Type or name."""
    cuda: str | None = None
    """Newest CUDA that the driver supports."""
    driver: str | None = None
    """Version of the driver."""
    source: str = ""
    """`the site profile` or `this machine`."""
    count: int | None = None
    """Number of this machine's GPUs; None: not counted."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The known facts about a model, its image and the site's GPUs."""

    model: Model
    """Its definition; if the model is here, with its folder as the source."""
    size: Size
    weights: Weights
    image: ImageFacts
    gpus: Gpus
    elsewhere: bool = False
    """Whether its engine runs on another machine with other GPUs than this site's."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The known facts about a plan."""

    models: Mapping[str, ModelFacts]
    """Run task → facts about its model."""
    datasets: Mapping[str, Size]
    """Dataset → its size."""
    here: Mapping[str, Dataset | None] = field(default_factory=dict)
    """Run task → its dataset on this machine; None: the dataset is not here yet."""
    scoring: tuple[ImageFacts, ...] = ()
    """Images in which metrics score."""


def look(resolved: ResolvedPlan, cache: Cache) -> Facts:
    """Collect the facts about a plan from definitions, caches and this machine; only reads."""
    built = built_images(cache.folder)
    images: dict[str | None, ImageFacts] = {}
    known: dict[str, tuple[Model, Size, Weights]] = {}
    models: dict[str, ModelFacts] = {}
    datasets: dict[str, Size] = {}
    here: dict[str, Dataset | None] = {}
    here_gpus: Gpus | None = None
    for run_task in resolved.run_tasks:
        model = run_task.model
        if model.image not in images:
            images[model.image] = _image(model.image, resolved, built)
        key = model.model_dump_json()
        if key not in known:
            known[key] = _model(model, cache)
        kind = environments.kind_of(model.image, resolved.site.container.manager)
        elsewhere = kind in environments.ELSEWHERE
        if elsewhere or not model.gpus:
            gpus = Gpus()
        elif resolved.executor == "local":
            gpus = here_gpus = here_gpus or _of_this_machine(resolved.site)
        else:
            gpus = _of_partition(resolved.site, run_task.task.resources)
        models[run_task.name] = ModelFacts(*known[key], images[model.image], gpus, elsewhere)
        found = cache.here(run_task.dataset)
        here[run_task.name] = found
        if run_task.dataset.name not in datasets:  # adding up its files takes time
            datasets[run_task.dataset.name] = _dataset_size(run_task.dataset, found, cache)
    scoring = dict.fromkeys(
        one.image for run_task in resolved.run_tasks for one in run_task.scoring_images
    )
    for reference in scoring:
        if reference not in images:
            images[reference] = _image(reference, resolved, built)
    return Facts(models, datasets, here, tuple(images[reference] for reference in scoring))


def _folder_bytes(folder: Path) -> int | None:
    """Bytes of the files below a folder; None: too many files."""
    size = 0
    for count, path in enumerate(folder.rglob("*")):
        if count > WALKED:
            return None
        if path.is_file():
            size += path.stat().st_size
    return size


def _built_image(name: str, built: Sequence[BuiltImage]) -> BuiltImage | None:
    """The built image of a reference; None: it was not built here."""
    for image in built:
        record = image.record
        if record is not None and (record.reference == name or name.endswith(record.digest)):
            return image
    return None


# --- images -----------------------------------------------------------------------------------------


def _image(
    reference: str | None, resolved: ResolvedPlan, built: Sequence[BuiltImage]
) -> ImageFacts:
    if reference is None or reference.startswith("venv:"):
        cuda = _cuda_of_this_python() if reference is None else None
        return ImageFacts(reference, Size(True, None), cuda, "this Python" if cuda else "")
    definition = resolved.images.get(reference)
    stated = definition.size_gb * 1e9 if definition is not None and definition.size_gb else None
    file = Path(reference)
    size = Size(False, stated, "its definition" if stated else "")
    image = _built_image(reference, built)
    if image is not None:
        size = Size(True, float(image.bytes))
        if (probe := image.probe) is not None and probe.cuda is not None:
            return ImageFacts(reference, size, probe.cuda, "the built image")
    elif file.suffix == ".sif" and file.is_file():
        size = Size(True, float(file.stat().st_size))
    if definition is not None and definition.cuda is not None:
        return ImageFacts(reference, size, definition.cuda, "its definition")
    named = _CUDA_OF_TAG.search(reference.partition("@")[0].rpartition("/")[2])
    cuda = f"{named[1]}.{named[2]}" if named else None
    return ImageFacts(reference, size, cuda, "its name" if cuda else "")


def _cuda_of_this_python() -> str | None:
    """The CUDA of the torch that is installed in this environment."""
    found = {}
    for name in (
        "torch",
        "nvidia-cuda-runtime",
        "nvidia-cuda-runtime-cu13",
        "nvidia-cuda-runtime-cu12",
    ):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "+cpu" in found.get("torch", "+cpu"):
        return None
    return Probe("", "", "", "", found).cuda


# --- models -----------------------------------------------------------------------------------------


def _model(model: Model, cache: Cache) -> tuple[Model, Size, Weights]:
    if not model.source:
        return model, Size(True, 0.0), Weights(None)
    there = cache.here(model)
    folder = Path(there.source) if there is not None else None
    if there is None or folder is None or not folder.is_dir():
        size, source = _stated_bytes(model)
        weights, of = _weights(model, None)
        return model, Size(False, size, source), Weights(weights, of, copies=_copies(model))
    weights, of = _weights(model, folder)
    found = _folder_bytes(folder)
    size_here = Size(True, float(found) if found is not None else None)
    cached = _cache_bytes(model, read_config(folder))
    return there, size_here, Weights(weights, of, cached, _copies(model))


def _stated_bytes(model: Model) -> tuple[float | None, str]:
    """Bytes to fetch: the definition's figure, or two bytes a parameter, as for most models on the hub."""
    if model.size_gb is not None:
        return model.size_gb * 1e9, "its definition"
    if model.parameters_b is not None:
        return model.parameters_b * 2e9, f"{model.parameters_b:g} billion parameters, 2 bytes each"
    return None, ""


def _weights(model: Model, folder: Path | None) -> tuple[float | None, str]:
    """Bytes of the weights in memory: the smallest figure of all sources, for an engine may convert them."""
    said: list[tuple[float, str]] = []
    if folder is not None:
        for pattern in WEIGHTS:
            if size := sum(path.stat().st_size for path in folder.glob(pattern)):
                said.append((float(size), "its files"))
                break
    elif model.size_gb is not None:
        said.append((model.size_gb * 1e9, "size_gb"))
    if model.parameters_b is not None:
        each = BYTES_OF[model.dtype]
        words = f"{model.parameters_b:g} billion parameters × {each} bytes"
        said.append((model.parameters_b * 1e9 * each, words))
    return min(said, default=(None, ""), key=lambda one: one[0] or 0.0)


def _copies(model: Model) -> int:
    if model.parallel is not None:
        return model.parallel.data
    value = option_of(model, DATA)
    return value if isinstance(value, int) and not isinstance(value, bool) and value else 1


def read_config(folder: Path) -> Mapping[str, Any]:
    """The part of config.json that describes the language model; empty: no readable file."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(found.get(name), dict):
            return {**found, **found[name]}
    return found


def _cache_bytes(model: Model, config: Mapping[str, Any]) -> float | None:
    """Bytes of the KV cache of one request of `context_length` tokens, over all GPUs together.

    2 (keys and values) × layers × heads of keys × size of a head × bytes of a value; with latent attention
    (DeepSeek) layers × (rank + rotary part) × bytes.
    """

    def number(name: str) -> int:
        value = config.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    tokens = model.context_length or number("max_position_embeddings")
    layers, heads = number("num_hidden_layers"), number("num_attention_heads")
    each = 1 if "fp8" in str(model.engine_options.get("kv_cache_dtype", "")) else 2
    if not (tokens and layers):
        return None
    if rank := number("kv_lora_rank"):
        return float(tokens * layers * (rank + number("qk_rope_head_dim")) * each)
    head = number("head_dim") or (number("hidden_size") // heads if heads else 0)
    keys = number("num_key_value_heads") or heads
    return float(2 * tokens * layers * keys * head * each) if keys and head else None


# --- datasets ---------------------------------------------------------------------------------------


def _dataset_size(dataset: Dataset, here: Dataset | None, cache: Cache) -> Size:
    if here is None:
        stated = dataset.size_gb * 1e9 if dataset.size_gb is not None else None
        return Size(False, stated, "its definition" if stated else "")
    folder = Path(here.source)
    if not folder.is_relative_to(cache.folder):
        return Size(True, None)  # the user's own folder, not part of the cache
    found = _folder_bytes(folder)
    return Size(True, float(found) if found is not None else None)


# --- GPUs -------------------------------------------------------------------------------------------


def gpus_of_site(site: Site) -> Gpus | None:
    """The GPUs that jobs get without a request for a type; None: the site has no GPUs."""
    if site.executor == "slurm":
        usual = site.slurm.partition_of()
        none = usual is not None and usual.gpus == {}
        return None if none else _of_partition(site, Resources())
    found = _of_this_machine(site)
    return found if found.count else None


def _of_partition(site: Site, need: Resources) -> Gpus:
    slurm, container = site.slurm, site.container
    partition = slurm.partition_of(need)
    kind, memory = slurm.gpu_type(need) or "", None
    if partition is not None:
        known = partition.gpu_memory_gb
        types = [kind] if kind else list(partition.gpus or known)
        kind = ", ".join(types)
        if all(one in known for one in types):  # a type of unknown memory may be the largest
            memory = max((known[one] for one in types), default=None)
    return Gpus(memory, kind, container.cuda, container.driver, "the site profile")


def _of_this_machine(site: Site) -> Gpus:
    from hpcbench.monitor.devices import (  # a slow import that Slurm's plans do not need
        gpus,
        visible,
    )

    container = site.container
    found = visible(gpus())
    if not found:
        return Gpus(None, "", container.cuda, container.driver, "this machine", 0)
    largest = max(found, key=lambda one: one.memory_bytes)
    return Gpus(
        largest.memory_bytes / 2**30,
        largest.name,
        largest.cuda or container.cuda,
        largest.driver or container.driver,
        "this machine",
        len(found),
    )
