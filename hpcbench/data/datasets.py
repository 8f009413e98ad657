"""Opening a dataset, and bringing one that lies elsewhere into the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from hpcbench import plugins
from hpcbench.data.hub import find_in_hub
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.once import make_once
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.documents import Dataset, Site

Say = Callable[[str], None]


def open_dataset(dataset: Dataset) -> DatasetIterator:
    """The iterator that a dataset's document names, over its split; the dataset lies on this machine.

    Raises:
        UserError: there is no such iterator, or it does not know an option.
    """
    plugin = plugins.load("datasets", dataset.iterator)
    if wrong := plugins.check_options(plugin, dataset.options):
        raise UserError(*(Problem(f"dataset '{dataset.name}': {message}") for _, message in wrong))
    iterator: DatasetIterator = plugin(
        DatasetSpec(
            folder=Path(dataset.source),
            annotations=dataset.annotations,
            split=dataset.split,
            mapping=dataset.mapping,
            options=dataset.options,
        )
    )
    return iterator


def local_dataset(
    dataset: Dataset, site: Site, cache: Path, say: Say, *, fetch: bool = True
) -> Dataset:
    """The dataset with a folder of this machine as its source; fetched if it lies elsewhere.

    Args:
        dataset: its document.
        site: where `hf://` is looked for.
        cache: where what is fetched goes, once for all.
        say: told what takes long.
        fetch: whether to bring it if it is not here yet.

    Raises:
        UserError: there is nothing there, or it is not here yet and not to be fetched.
        EnvironmentFault: it cannot be fetched.
    """
    scheme, marks, _ = dataset.source.partition("://")
    if not marks:
        return dataset
    if scheme == "hf":
        folder = find_in_hub(dataset.source, site.models)
    else:
        folder = cache / "datasets" / hashlib.sha256(dataset.source.encode()).hexdigest()[:24]
        if not fetch and not folder.exists():
            remedy = "`hpcbench submit` without --dry-run fetches it"
            raise UserError(Problem(f"{dataset.source} is not here yet", remedy=remedy))
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_once(folder, lambda target: _fetch(scheme, dataset, target, say))
    return dataset.model_copy(update={"source": str(folder)})


def _fetch(scheme: str, dataset: Dataset, target: Path, say: Say) -> None:
    storage = plugins.load("storage", scheme)()
    say(f"fetching dataset {dataset.name} from {dataset.source}")
    target.mkdir()
    try:
        listed = list(storage.list(dataset.source))
        for path, size in listed:
            place = target / path
            if not place.resolve().is_relative_to(target.resolve()):
                raise EnvironmentFault(f"{dataset.source} lists a file outside itself: {path}")
            place.parent.mkdir(parents=True, exist_ok=True)
            storage.fetch(dataset.source, path, place)
            if place.stat().st_size != size:
                got = place.stat().st_size
                raise EnvironmentFault(f"{dataset.source}: {path} came with {got} bytes of {size}")
    except OSError as error:
        raise EnvironmentFault(
            f"cannot fetch {dataset.source}: {error}", remedy="try again; nothing half is kept"
        ) from error
    if not listed:
        raise UserError(Problem("nothing lies there", dataset.source))
