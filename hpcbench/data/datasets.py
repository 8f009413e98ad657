"""Opening a dataset on this machine, choosing its samples, and finding unreadable samples."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.data.pages import page_of
from hpcbench.data.pictures import fault_of, name_of
from hpcbench.errors import HpcbenchError, Problem, UserError, unknown
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.records import Sample
from hpcbench.schema.run_task import RunTaskSettings

Ranges = Sequence[tuple[int, int]]
"""Ranges of places in a dataset: start, stop (exclusive), in order."""

LOOK_AHEAD = 64
"""Number of samples whose images are checked at once."""


def open_dataset(
    dataset: Dataset, cache: Path | None = None, origin: Path | None = None
) -> DatasetIterator:
    """The iterator that a dataset's definition names, over its split; the dataset is on this machine.

    Args:
        dataset: its definition.
        cache: `HOME/cache`, for rendered pages.
        origin: folder from which the dataset was copied.

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
            on_bad=dataset.on_bad,
            cache=cache / "pages" if cache is not None else None,
            origin=origin,
        )
    )
    return iterator


def bad_rows(iterator: DatasetIterator) -> list[Problem]:
    """Rows that the iterator left out."""
    found: list[Problem] = iterator.bad() if hasattr(iterator, "bad") else []
    return found


def bad_before(iterator: DatasetIterator, index: int) -> list[Problem]:
    """Left-out rows before a sample; none if the iterator cannot say."""
    if hasattr(iterator, "bad_before"):
        found: list[Problem] = iterator.bad_before(index)
        return found
    if not hasattr(iterator, "place"):
        return []
    file, number = iterator.place(index)
    place = (str(file), number or 0)
    return [one for one in bad_rows(iterator) if (one.file or "", one.line or 0) < place]


def samples(
    iterator: DatasetIterator, ranges: Ranges, start: int, stop: int, *, images: bool = True
) -> Iterator[Sample]:
    """Yield chosen samples `start` to `stop` (exclusive), counted among the chosen ones.

    Args:
        iterator: the dataset.
        ranges: places of the chosen samples.
        start, stop: the slice.
        images: whether images are needed; without them some iterators read less.
    """
    more = {} if images or not _can_omit(iterator) else {"images": False}
    slices, passed = list[range](), 0
    for low, high in ranges:
        first, last = max(low, low + start - passed), min(high, low + stop - passed)
        if first < last:
            slices.append(range(first, last))
        passed += high - low
        if passed >= stop:
            break
    if hasattr(iterator, "at"):  # scattered places, in as few reads as possible
        yield from iterator.at(itertools.chain.from_iterable(slices), **more)
        return
    for some in slices:
        yield from iterator.iter(some.start, some.stop, **more)


def total(ranges: Ranges) -> int:
    """Number of chosen samples."""
    return sum(high - low for low, high in ranges)


def check_places(iterator: DatasetIterator, name: str, count: int, ranges: Ranges) -> None:
    """Check whether places in a dataset can still be the places of the chosen samples.

    Rows added at its end move no sample. `check_answers` finds other moves.

    Args:
        iterator: the dataset.
        name: its name.
        count: its number of samples at the time of the choice; 0: not recorded.
        ranges: places of the chosen samples.

    Raises:
        UserError: the dataset has fewer samples now.
    """
    least = count or (ranges[-1][1] if ranges else 0)
    if (now := iterator.count()) < least:
        then = str(count) if count else f"{least} or more"
        raise _read_otherwise(name, f"{then} samples then, {now} now")


def check_answers(answered: Collection[str], samples: Collection[str], name: str) -> None:
    """Check that every answered sample of a shard is still among the samples at the shard's places.

    Raises:
        UserError: one is not.
    """
    for sample_id in answered:
        if sample_id not in samples:
            how = f"sample '{sample_id}' has an answer, but is no longer at its place"
            raise _read_otherwise(name, how)


def _read_otherwise(name: str, how: str) -> UserError:
    """The error that the chosen samples are no longer at their places."""
    what = (
        f"dataset '{name}' has changed since hpcbench prepared the experiment (other files, or another "
        f"version of hpcbench): {how}"
    )
    return UserError(Problem(what, remedy="submit the plan again"))


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample with an unreadable image."""

    index: int
    """Its place in the dataset."""
    problem: Problem
    """Its place in the files, and the reason."""


def choose(
    iterator: DatasetIterator, task: RunTaskSettings, seed: int, bad: Iterable[int] = ()
) -> list[tuple[int, int]]:
    """The samples that a run task asks about: `where` applies first, then `sample`, then `limit`.

    Args:
        iterator: the dataset.
        task: its settings.
        seed: of the random sample.
        bad: places to leave out.

    Raises:
        UserError: `where` is no expression, or no sample is left.
    """
    count, out = iterator.count(), set(bad)
    if task.where is None and task.sample is None:
        places: Iterable[int] = (place for place in range(count) if place not in out)
        return _left(ranges_of(itertools.islice(places, task.limit)), task, count)
    wanted = compile_where(task.where) if task.where is not None else None
    strata: dict[str, list[int]] = defaultdict(list)
    by = task.sample.by if task.sample is not None else None
    for place, sample in enumerate(samples(iterator, [(0, count)], 0, count, images=False)):
        known = _known(sample)
        if place in out or (wanted is not None and not wanted(known)):
            continue
        if by is not None and by not in known:
            raise UserError(_unknown_name(by, known))
        strata[str(known[by]) if by is not None else ""].append(place)
    chosen = sorted(itertools.chain.from_iterable(strata.values()))
    if task.sample is not None:
        chosen = draw(strata, task.sample.size, seed)
    return _left(ranges_of(chosen[: task.limit]), task, count)


def _left(
    ranges: list[tuple[int, int]], task: RunTaskSettings, count: int
) -> list[tuple[int, int]]:
    """The ranges. Raises UserError: there are none."""
    if not ranges:
        why = f"where {task.where!r}" if task.where is not None else "none can be read"
        raise UserError(Problem(f"no sample is left of {count}: {why}"))
    return ranges


def draw(strata: Mapping[str, Sequence[int]], size: int, seed: int) -> list[int]:
    """`size` random places, from each stratum its share (largest remainders), in order.

    The same seed and the same places give the same sample.
    """
    count = sum(len(places) for places in strata.values())
    size = min(size, count)
    exact = {name: size * len(places) / count for name, places in strata.items()}
    shares = {name: math.floor(share) for name, share in exact.items()}
    rest = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in rest[: size - sum(shares.values())]:
        shares[name] += 1
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    return sorted(
        place for name in sorted(strata) for place in chance.sample(strata[name], shares[name])
    )


def compile_where(expression: str) -> Any:
    """Compile an expression over a sample's fields and metadata into a function of them.

    It is a Jinja2 expression in the sandbox: `doc_type == 'invoice' and pages < 3`, `'total' in question`.

    Raises:
        UserError: it is no expression. The function raises it if the expression names a field that a sample
            lacks, or fails otherwise.
    """
    from jinja2 import StrictUndefined, TemplateError, UndefinedError
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(undefined=StrictUndefined)
    del environment.filters["random"], environment.globals["lipsum"]  # the same samples every time
    try:
        compiled = environment.compile_expression(expression, undefined_to_none=False)
    except (TemplateError, ValueError, RecursionError) as error:
        raise UserError(
            Problem(f"where {expression!r} is not a valid expression: {error}")
        ) from error

    def holds(known: Mapping[str, Any]) -> bool:
        try:
            return bool(compiled(**known))
        except UndefinedError as error:
            raise UserError(
                Problem(f"where {expression!r}: {error} (there are: {', '.join(sorted(known))})")
            ) from error
        except Exception as error:  # an expression can raise any error
            raise UserError(Problem(f"where {expression!r}: {error}")) from error

    return holds


def unreadable(iterator: DatasetIterator, most: int | None = None) -> Iterator[BadSample]:
    """Yield samples with an image that is missing, empty, cut off, too large or unknown to Pillow.

    It reads the beginnings and ends of files; it loads pages of documents and does not render them.

    Args:
        iterator: the dataset.
        most: number of its first samples to check; None: all.
    """
    count = min(iterator.count(), most) if most is not None else iterator.count()
    with ThreadPoolExecutor(8) as pool:
        for start in range(0, count, LOOK_AHEAD):
            some = list(iterator.iter(start, min(start + LOOK_AHEAD, count)))
            for index, why in enumerate(pool.map(_unreadable, some), start):
                if why is not None:
                    yield BadSample(index, placed(iterator, index, why))


def _unreadable(sample: Sample) -> str | None:
    for image in sample.images:
        page = page_of(image)
        try:
            why = page.fault() if page is not None else fault_of(image)
        except HpcbenchError as error:
            why = str(error)
        if why is not None:
            return f"sample '{sample.id}': {name_of(image)}: {why}"
    return None


def placed(iterator: DatasetIterator, index: int, why: str) -> Problem:
    """The problem of a sample, with its place in the files if the iterator knows it."""
    if hasattr(iterator, "place"):
        path, number = iterator.place(index)
        return Problem(why, str(path), number)
    return Problem(why)


def _known(sample: Sample) -> dict[str, Any]:
    """Names that `where` and `sample.by` may use."""
    return {
        "id": sample.id,
        "document": sample.document,
        **{str(key): value for key, value in sample.metadata.items()},
        **{str(key): value for key, value in sample.fields.items()},
    }


def _unknown_name(name: str, known: Mapping[str, Any]) -> Problem:
    return Problem(unknown("field or metadata of the samples", name, known))


def ranges_of(places: Iterable[int]) -> list[tuple[int, int]]:
    """Ranges of consecutive places, from and to (exclusive), of places in ascending order."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found


def _can_omit(iterator: DatasetIterator) -> bool:
    return "images" in inspect.signature(iterator.iter).parameters
