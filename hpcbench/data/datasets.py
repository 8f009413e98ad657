"""Opening a dataset that lies on this machine, choosing samples of it, and finding those nobody can read."""

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
from hpcbench.schema.documents import Dataset, RunTaskSettings
from hpcbench.schema.records import Sample

Ranges = Sequence[tuple[int, int]]
"""Places in a dataset: from, to (exclusive), in order."""

LOOK_AHEAD = 64
"""Samples whose images are looked at at once."""


def open_dataset(
    dataset: Dataset, cache: Path | None = None, origin: Path | None = None
) -> DatasetIterator:
    """The iterator that a dataset's document names, over its split; the dataset lies on this machine.

    Args:
        dataset: its document.
        cache: `HOME/cache`, where rendered pages are kept.
        origin: folder that it was copied from.

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
    """Those of them that stand before a sample; none, where nobody can tell."""
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
    """Chosen samples `start` to `stop` (exclusive), counted among those chosen.

    Args:
        iterator: the dataset.
        ranges: which of its samples are chosen.
        start, stop: the slice.
        images: whether images are needed; an iterator that can do without reads less then.
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
    if hasattr(iterator, "at"):  # places that lie apart, in as few reads as it can
        yield from iterator.at(itertools.chain.from_iterable(slices), **more)
        return
    for some in slices:
        yield from iterator.iter(some.start, some.stop, **more)


def total(ranges: Ranges) -> int:
    """How many samples are chosen."""
    return sum(high - low for low, high in ranges)


def check_places(iterator: DatasetIterator, name: str, count: int, ranges: Ranges) -> None:
    """Whether places in a dataset can still be those of the samples that were chosen.

    Rows may have been added at its end meanwhile: they move nothing. What else moved, `check_answers` tells.

    Args:
        iterator: the dataset.
        name: what it is called.
        count: samples it had when they were chosen; 0: nobody wrote it down.
        ranges: where they were.

    Raises:
        UserError: they cannot: it has fewer samples now.
    """
    least = count or (ranges[-1][1] if ranges else 0)
    if (now := iterator.count()) < least:
        then = str(count) if count else f"{least} or more"
        raise _read_otherwise(name, f"{then} samples then, {now} now")


def check_answers(answered: Collection[str], samples: Collection[str], name: str) -> None:
    """Whether all that was answered of a shard is among the samples that now stand where it was asked about.

    Raises:
        UserError: it is not.
    """
    for sample_id in answered:
        if sample_id not in samples:
            how = f"sample '{sample_id}', which was answered, is not where it was then"
            raise _read_otherwise(name, how)


def _read_otherwise(name: str, how: str) -> UserError:
    """That places in a dataset are no longer those of the samples that were chosen."""
    what = (
        f"dataset '{name}' is read otherwise than when the experiment was prepared, by another version of "
        f"hpcbench or from other files: {how}"
    )
    return UserError(Problem(what, remedy="submit again"))


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample with an image that nobody can read."""

    index: int
    """Its place in the dataset."""
    problem: Problem
    """Where it stands, and why."""


def choose(
    iterator: DatasetIterator, task: RunTaskSettings, seed: int, bad: Iterable[int] = ()
) -> list[tuple[int, int]]:
    """The samples that a run task asks about: `where`, then `sample`, then `limit`.

    Args:
        iterator: the dataset.
        task: what is wanted.
        seed: of the random sample.
        bad: places to leave out.

    Raises:
        UserError: the expression is none, or nothing is left.
    """
    count, out = iterator.count(), set(bad)
    if task.where is None and task.sample is None:
        places: Iterable[int] = (place for place in range(count) if place not in out)
        return _left(_ranges(itertools.islice(places, task.limit)), task, count)
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
    return _left(_ranges(chosen[: task.limit]), task, count)


def _left(
    ranges: list[tuple[int, int]], task: RunTaskSettings, count: int
) -> list[tuple[int, int]]:
    """The ranges; a UserError if there are none."""
    if not ranges:
        why = f"where {task.where!r}" if task.where is not None else "none can be read"
        raise UserError(Problem(f"no sample is left of {count}: {why}"))
    return ranges


def draw(strata: Mapping[str, Sequence[int]], size: int, seed: int) -> list[int]:
    """So many places at random, from each stratum its share (largest remainders), in order.

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
    """An expression over a sample's fields and metadata, as a function of them.

    It is Jinja2's, in its sandbox: `doc_type == 'invoice' and pages < 3`, `'total' in question`.

    Raises:
        UserError: it is no expression; the function: it names what a sample does not have.
    """
    from jinja2 import StrictUndefined, TemplateError, UndefinedError
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(undefined=StrictUndefined)
    del environment.filters["random"], environment.globals["lipsum"]  # the same samples every time
    try:
        compiled = environment.compile_expression(expression, undefined_to_none=False)
    except (TemplateError, ValueError, RecursionError) as error:
        raise UserError(Problem(f"where {expression!r} is no expression: {error}")) from error

    def holds(known: Mapping[str, Any]) -> bool:
        try:
            return bool(compiled(**known))
        except UndefinedError as error:
            raise UserError(
                Problem(f"where {expression!r}: {error} (there are: {', '.join(sorted(known))})")
            ) from error
        except Exception as error:  # whatever an expression can do
            raise UserError(Problem(f"where {expression!r}: {error}")) from error

    return holds


def unreadable(iterator: DatasetIterator, most: int | None = None) -> Iterator[BadSample]:
    """Samples with an image that is missing, empty, cut off, too large or of no form Pillow knows.

    Beginnings and ends of files are looked at; pages of documents are loaded, and not rendered.

    Args:
        iterator: the dataset.
        most: so many of its first samples are looked at; None: all.
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
    """What is wrong with a sample, and where it stands as far as the iterator tells."""
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


def _ranges(places: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found


def _can_omit(iterator: DatasetIterator) -> bool:
    return "images" in inspect.signature(iterator.iter).parameters
