"""The samples of one run task by columns: from its scores after evaluation, from its answers before.

Columns are read when a request filters or sorts by them, and kept within a limit; texts are read only for the
rows of an answer. A row's number is the sample's *place*, its address in the portal.

| column | source | meaning |
|---|---|---|
| `place` | all | number of the sample among those that were asked |
| `sample`, `document`, `outcome` | all | as in docs/scores.md |
| `reason`, `invalid`, metrics, `meta.NAME` | scores | as in docs/scores.md |
| `latency`, `output_tokens` | all | seconds from sending to the last text; the engine's count of tokens |
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.data.datasets import ranges_of
from hpcbench.errors import HpcbenchError
from hpcbench.evaluation.scoring import as_text
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answer import MISSING, Recorded, records_at
from hpcbench.experiment.view.answers import answers_stamp
from hpcbench.experiment.view.scores import META, held, scan, shape_of
from hpcbench.portal.answer_tables import samples_saying, times_of
from hpcbench.portal.asked_samples import DatasetReader, Gone, Names
from hpcbench.portal.context import Portal, once
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.portal.results_cache import PageExperiment, results_of
from hpcbench.portal.sample_flags import Flags
from hpcbench.portal.slow_work import SlowWork
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample
from hpcbench.scorer.one import takes_measurement

if TYPE_CHECKING:
    from hpcbench.prompts import TaskPrompt

COLUMNS_BYTES = 6 << 20
"""Bytes of columns that are kept."""

PLACES_BYTES = 8 << 20
"""Bytes of kept places: sorted, or filtered by a text."""

LARGE = 50_000
"""Samples above which a pass over all texts or answers runs outside of requests."""

GATHERED = 20_000
"""Samples up to which scattered rows are picked from whole columns."""

TIMES = ("latency", "output_tokens")
"""Columns of an answer's cost."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Meaning of a metric's values."""

    higher_is_better: bool
    """Whether a higher value is better."""
    best: float | None
    """The best possible value; None: there is no limit."""
    signature: str
    """The metric with all its options."""
    metric: Any = None
    """The metric itself; None: its plugin is not available here."""

    @property
    def measures(self) -> bool:
        """Whether it says what an answer took, and so makes none wrong."""
        return takes_measurement(self.metric)


@dataclass
class SampleCache:
    """Data of samples that the portal keeps between requests."""

    columns: LruCache[Any] = field(
        default_factory=lambda: LruCache(COLUMNS_BYTES, lambda one: int(one.estimated_size()) + 64)
    )
    places: LruCache[Any] = field(
        default_factory=lambda: LruCache(PLACES_BYTES, lambda one: int(one.nbytes) + 64)
    )
    shapes: LruCache[tuple[int, tuple[str, ...]]] = field(default_factory=lambda: LruCache(2_000))
    kinds: LruCache[Mapping[str, Kind]] = field(default_factory=lambda: LruCache(300))
    asked: DatasetReader = field(default_factory=DatasetReader)
    slow: SlowWork = field(default_factory=SlowWork)
    flags: Flags = field(default_factory=Flags)


sample_cache_of = once(lambda _: SampleCache())
"""The portal's store of samples."""


class SampleTable(ABC):
    """The samples of one run task; see `ScoresTable` and `LiveTable`."""

    live: bool
    """Whether it is not evaluated: answers have no scores, and more may come."""
    rows: int
    """Number of samples."""
    stamp: Hashable
    """Changes with its contents."""
    metrics: tuple[str, ...] = ()
    """Metrics, the leading one first."""
    metadata: tuple[str, ...] = ()
    """Names of metadata with a column."""
    has_mistakes: bool = False
    """Whether the kinds of mistakes are known."""

    def __init__(self, cache: SampleCache, experiment: PageExperiment, run_task: str) -> None:
        self.cache, self.experiment, self.name = cache, experiment, run_task
        self.key: tuple[Path, str] = (experiment.path, run_task)
        self._last: tuple[int, Sample] | None = None
        """Place of the sample that was asked for last, and the sample: a page asks for it several times."""

    @property
    def version(self) -> str:
        """Changes when samples change."""
        return hashlib.sha256(repr((self.live, self.stamp)).encode()).hexdigest()[:16]

    @cached_property
    def run_task(self) -> ResolvedRunTask:
        """The run task with its definitions."""
        return self.experiment.run_task(self.name)

    @cached_property
    def prompt(self) -> TaskPrompt:
        """The run task's prompt; raises what a foreign strategy raises."""
        from hpcbench.prompts import TaskPrompt

        return TaskPrompt(self.run_task)

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that a request can sort by."""
        metas = tuple(META + one for one in self.metadata)
        return ("place", "sample", "document", "outcome", "reason", *TIMES, *self.metrics, *metas)

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Metric → meaning of its values."""
        stamp = stamp_of(self.experiment.resolved_file)
        return self.cache.kinds.of(self.key, stamp, self._kinds)

    def _kinds(self) -> Mapping[str, Kind]:
        from hpcbench.evaluation.plan_metrics import load_metrics

        try:
            self.experiment.use_packages()
            found = load_metrics(self.run_task)
        except (HpcbenchError, OSError, ValueError, KeyError, TypeError):
            found = {}
        kinds = {}
        for name in self.metrics:
            metric = found.get(name)
            if metric is None:
                kinds[name] = Kind(higher_is_better=True, best=None, signature=name)
                continue
            up = bool(metric.higher_is_better)
            best = metric.bounds[1] if up else metric.bounds[0]
            kinds[name] = Kind(up, None if best is None else float(best), metric.signature, metric)
        return kinds

    def check(self, place: int) -> None:
        """Check that there is a sample at a place.

        Raises:
            PortalFault: there is none.
        """
        if not 0 <= place < self.rows:
            raise missing(f"there is no sample {place}: the run task has {self.rows} samples")

    def recorded(self, samples: Mapping[int, str]) -> dict[int, Recorded]:
        """Recorded answers by the places of their samples; without answers that cannot be found."""
        asked = {self.asked_place(place): place for place in samples}
        wanted = {there: samples[place] for there, place in asked.items()}
        try:
            found = records_at(self.experiment, self.name, wanted)
        except (OSError, ValueError, KeyError):
            return {}
        return {asked[there]: one for there, one in found.items()}

    def asked_place(self, place: int) -> int:
        """Number of a row's sample among all samples that the run task was to ask."""
        return place

    def sample(self, place: int, name: str | None = None) -> Sample:
        """The dataset's own sample, with its images.

        Args:
            place: its place.
            name: its id as the run recorded it; None: not known here.

        Raises:
            Gone: it is not available, or has changed since.
        """
        if self._last is not None and self._last[0] == place:
            return self._last[1]
        try:
            run_task = self.run_task
        except (OSError, ValueError, KeyError):
            raise Gone("the experiment's resolved plan cannot be read") from None
        found = self.cache.asked.sample(self.experiment, run_task, self.asked_place(place))
        if not self.live and found.id != (name or self.rows_at([place], ["sample"])[0]["sample"]):
            raise Gone("the dataset has changed since the run: another sample is at this place")
        self._last = place, found
        return found

    @abstractmethod
    def frame(self, names: Sequence[str]) -> Any:
        """Columns of all samples as a polars frame, in order of places.

        Raises:
            NotYet: the columns are being computed.
        """

    @abstractmethod
    def rows_at(
        self, places: Sequence[int], names: Sequence[str], *, whole: bool = False
    ) -> list[dict[str, Any]]:
        """Columns of some samples, in the order of `places`.

        Args:
            places: places of the samples.
            names: columns; unknown columns are left out.
            whole: give whole answers; else their beginnings.
        """

    @abstractmethod
    def containing(self, text: str) -> Any:
        """Places of samples whose id, answer or references contain a text, in any case, as an array.

        Raises:
            NotYet: the search is running.
        """


BEGINNING = 300
"""Characters of an answer in a list."""


class ScoresTable(SampleTable):
    """An evaluated run task: the contents of its scores file."""

    live = False

    def __init__(self, cache: SampleCache, experiment: PageExperiment, run_task: str) -> None:
        super().__init__(cache, experiment, run_task)
        self.path = experiment.scores_file(run_task)
        self.stamp = stamp_of(self.path)
        self.rows, columns = cache.shapes.of(self.key, self.stamp, self._shape)
        self.there = frozenset((*columns, *TIMES))
        self.has_mistakes = "mistake" in columns
        self.metrics = tuple(
            name.removesuffix(".fault") for name in columns if name.endswith(".fault")
        )
        self.metadata = tuple(name[len(META) :] for name in columns if name.startswith(META))

    def _shape(self) -> tuple[int, tuple[str, ...]]:
        """Rows and columns of the file."""
        shape = shape_of(self.path)
        if shape is None or not shape.columns.keys() >= _NEEDED:
            raise _unreadable(self.experiment)
        return shape.rows, tuple(shape.columns)

    def frame(self, names: Sequence[str]) -> Any:

        kept = self.cache.columns
        wanted = [name for name in dict.fromkeys(names) if name != "place"]
        if (whole := held(self.path)) is not None:  # its columns are in memory already
            columns = [
                whole.get_column(name) if name not in TIMES else whole.select(_in_file(name))[name]
                for name in wanted
            ]
            return self._with_places(columns)
        known = {name: kept.held((*self.key, name), self.stamp) for name in wanted}
        lacking = [name for name, one in known.items() if one is None]
        read: Any = scan(self.path).select(map(_in_file, lacking)).collect() if lacking else None
        columns = [
            one[0]
            if one is not None
            else kept.of((*self.key, name), self.stamp, lambda name=name: read[name])  # type: ignore[misc]
            for name, one in known.items()
        ]
        return self._with_places(columns)

    def _with_places(self, columns: Sequence[Any]) -> Any:
        import polars

        places = polars.int_range(self.rows, dtype=polars.UInt32, eager=True).alias("place")
        return polars.DataFrame([places, *columns])

    def rows_at(
        self, places: Sequence[int], names: Sequence[str], *, whole: bool = False
    ) -> list[dict[str, Any]]:
        import polars

        columns = {name: _in_file(name) for name in names if name in self.there}
        if "answer" in columns and not whole:
            columns["answer"] = polars.col("answer").str.head(BEGINNING + 1)
        return rows_of_file(self.path, self.rows, places, [*columns.values()])

    def containing(self, text: str) -> Any:
        import polars

        def make() -> Any:
            wanted = f"(?i){polars.escape_regex(text)}"
            texts = (
                polars.col("answer"), polars.col("sample"), polars.col("references").list.join("\n")
            )  # fmt: skip
            holds = polars.any_horizontal(
                one.str.contains(wanted).fill_null(value=False) for one in texts
            )
            # Batch by batch: all texts of a million samples would not fit into memory.
            engine = "streaming" if self.rows > LARGE else "auto"
            found = scan(self.path).with_row_index("place").filter(holds).select("place")
            return found.collect(engine=engine)["place"].cast(polars.UInt32).to_numpy()

        key = (*self.key, "text", text)
        if self.rows > LARGE:
            return self.cache.slow.of(self.cache.places, key, self.stamp, make)
        return self.cache.places.of(key, self.stamp, make)

    def asked_place(self, place: int) -> int:
        """See `SampleTable`. Where enough samples were asked, only shards that are done have rows."""
        for row, start, stop in self._asked:
            if row <= place < row + stop - start:
                return start + place - row
        return place

    @cached_property
    def _asked(self) -> list[tuple[int, int, int]]:
        """First row of each stretch, and the places (from, to) of its rows."""
        cut = self.experiment.work.cut(self.name)
        if cut is None or cut.samples == self.rows:
            return []
        if self.name not in control_state(self.experiment).enough_tasks:
            return []
        found, row = [], 0
        for state in shard_states(self.experiment, [self.name]):
            if state.state == "done":
                found.append((row, state.shard.start, state.shard.stop))
                row += state.shard.stop - state.shard.start
        return found if row == self.rows else []


_NEEDED = {
    "sample", "document", "outcome", "answer", "prediction", "reason", "invalid", "references", "e2e_ms",
    "completion_tokens",
}  # fmt: skip


def _in_file(name: str) -> Any:
    """A column of the table as an expression over a scores file."""
    import polars

    if name == "latency":
        return (polars.col("e2e_ms") / 1000).round(9).alias(name)
    if name == "output_tokens":
        return polars.col("completion_tokens").alias(name)
    return polars.col(name)


def _unreadable(experiment: Experiment) -> PortalFault:
    return PortalFault(
        500, "unreadable", "the scores of this run task cannot be read",
        f"write them again: `hpcbench score {experiment.id}`",
    )  # fmt: skip


def rows_of_file(
    path: Path, count: int | None, places: Sequence[int], columns: Sequence[Any]
) -> list[dict[str, Any]]:
    """Columns of some rows of a scores file, in the order of `places`.

    Args:
        path: the file.
        count: number of its rows; None: unknown.
        places: numbers of rows.
        columns: names, or polars expressions over a single row.
    """
    import polars

    if not places:
        return []
    if (whole := held(path)) is not None:
        index = polars.Series(places, dtype=polars.UInt32)
        if all(isinstance(one, str) for one in columns):
            return polars.DataFrame([whole.get_column(one) for one in columns])[index].to_dicts()
        return whole[index].select(columns).to_dicts()  # type: ignore[no-any-return]
    table = scan(path)
    first, last = min(places), max(places)
    near = last - first < max(1_000, 4 * len(places))
    if count is None and not near:
        count = int(table.select(polars.len()).collect().item())
    if near or (count or 0) <= GATHERED:
        block = table.slice(first, last - first + 1)
        index = polars.Series([place - first for place in places], dtype=polars.UInt32)
        found = block.select(columns).collect()[index]
    else:
        # By their ids: of other columns, only the pages with these rows are read.
        ids = table.select(polars.col("sample").gather(list(places))).collect()
        wanted = ids["sample"].implode()
        some = table.filter(polars.col("sample").is_in(wanted)).select(
            polars.col("sample").alias("#sample"), *columns
        )
        known = some.collect().unique("#sample", keep="first")
        found = ids.select(polars.col("sample").alias("#sample")).join(
            known, on="#sample", how="left", maintain_order="left"
        )
    rows: list[dict[str, Any]] = found.to_dicts()
    return rows


class LiveTable(SampleTable):
    """A run task that is not evaluated: its answers so far, and the dataset's own samples.

    Where the dataset cannot be opened, the answered samples of a shard are in the order of their answers; of
    samples that were not asked, only the number is known.
    """

    live = True

    def __init__(self, cache: SampleCache, experiment: PageExperiment, run_task: str) -> None:
        super().__init__(cache, experiment, run_task)
        cut = experiment.work.cut(run_task)
        assert cut is not None  # the caller has checked this
        self.cut = cut
        self.rows = cut.samples
        self.stamp = answers_stamp(experiment, run_task)

    def _names(self) -> Names | None:
        """Ids of its samples; None: the dataset does not give them."""
        try:
            return self.cache.asked.names(self.experiment, self.run_task, self.rows)
        except (Gone, OSError, ValueError, KeyError):
            return None

    @property
    def _large(self) -> bool:
        return self.rows > LARGE

    def _whole(self) -> Any:
        """All samples with outcome and times of their answers; many are computed outside of requests."""
        kept, key = self.cache.columns, (*self.key, "live")
        if self._large:
            return self.cache.slow.of(kept, key, self.stamp, self._made)
        return kept.of(key, self.stamp, self._made)

    def _made(self) -> Any:
        import polars

        answers = times_of(self.experiment, self.name)
        names = self._names()
        places = polars.int_range(self.rows, dtype=polars.UInt32, eager=True).alias("place")
        if names is not None:
            asked = polars.DataFrame([places, names.ids, names.documents])
            answers = answers.unique("sample", keep="first", maintain_order=True)
            whole = asked.join(answers, on="sample", how="left", maintain_order="left")
        else:
            starts = polars.Series(
                "place", [self.cut.shard(one).start for one in answers["shard"].to_list()],
                dtype=polars.UInt32,
            )  # fmt: skip
            nth = polars.int_range(polars.len(), dtype=polars.UInt32).over("shard")
            came = answers.with_columns(place=starts + answers.select(nth).to_series())
            empty = polars.lit(None, polars.String).alias("document")
            whole = places.to_frame().join(
                came.with_columns(empty), on="place", how="left", maintain_order="left"
            )
        return whole.with_columns(
            polars.col("outcome").fill_null(MISSING),
            polars.lit(None, polars.String).alias("reason"),
            polars.lit(value=False).alias("invalid"),
        ).select("place", "sample", "document", "outcome", "reason", "invalid", *TIMES)

    def frame(self, names: Sequence[str]) -> Any:
        return self._whole().select(list(dict.fromkeys(["place", *names])))

    def rows_at(
        self, places: Sequence[int], names: Sequence[str], *, whole: bool = False
    ) -> list[dict[str, Any]]:
        ids = self._called(places)
        answers = self.recorded({place: one["sample"] for place, one in ids.items()})
        rows = []
        for place in places:
            one, answer = ids.get(place, {}), answers.get(place)
            row: dict[str, Any] = {
                "sample": one.get("sample") or f"#{place}",
                "document": one.get("document") or "",
                "outcome": MISSING,
                "reason": None,
                "invalid": False,
                "answer": None,
                "error": None,
                "prompt": None,
                "latency": None,
                "output_tokens": None,
            }
            if answer is not None:
                response = answer.response
                row |= {
                    "outcome": response.outcome,
                    "answer": response.text,
                    "error": response.error,
                    "prompt": response.prompt or None,
                    "latency": answer.latency,
                    "output_tokens": answer.usage["completion_tokens"],
                }
            rows.append(row)
        return rows

    def _called(self, places: Sequence[int]) -> dict[int, dict[str, str]]:
        """Place → data of its sample without the answer."""
        found: dict[int, dict[str, str]] = {}
        try:
            for start, stop in ranges_of(sorted(set(places))):
                some = self.cache.asked.between(
                    self.experiment, self.run_task, start, stop, images=False
                )
                for place, one in enumerate(some, start):
                    found[place] = {"sample": one.id, "document": one.document}
        except (Gone, OSError, ValueError, KeyError):
            rows = self._whole().select("place", "sample")[list(places)].to_dicts()
            return {row["place"]: row for row in rows if row["sample"] is not None}
        return found

    def containing(self, text: str) -> Any:
        def make() -> Any:
            import polars

            whole = self.cache.columns.of((*self.key, "live"), self.stamp, self._made)
            pattern = f"(?i){polars.escape_regex(text)}"
            said = samples_saying(self.experiment, self.name, pattern)
            name = polars.col("sample")
            holds = name.str.contains(pattern) | name.is_in(said.implode())
            found = whole.filter(holds.fill_null(value=False))["place"]
            more = polars.Series("place", self._referring(text), dtype=polars.UInt32)
            return polars.concat([found, more]).unique().sort().to_numpy()

        key = (*self.key, "text", text)
        if self._large:
            return self.cache.slow.of(self.cache.places, key, self.stamp, make)
        return self.cache.places.of(key, self.stamp, make)

    def _referring(self, text: str) -> list[int]:
        """Places of samples whose references contain a text; empty where the dataset cannot be opened."""
        wanted = text.casefold()
        try:
            asked = self.cache.asked.between(
                self.experiment, self.run_task, 0, self.rows, images=False
            )
        except (Gone, OSError, ValueError, KeyError):
            return []
        return [
            place
            for place, one in enumerate(asked)
            if any(wanted in (as_text(some) or "").casefold() for some in one.references)
        ]


def sample_table_of(portal: Portal, identity: str, run_task: str) -> SampleTable:
    """The samples of a run task: from its scores, unless it has more answers than scores.

    Raises:
        PortalFault: there is no such experiment or run task, or its scores cannot be read.
    """
    experiment = results_of(portal).experiment(portal, identity)
    cache = sample_cache_of(portal)
    cut = experiment.work.cut(run_task)
    if cut is None:
        raise missing(f"{experiment.id} has no run task '{run_task[:200]}'")
    if experiment.scores_file(run_task).exists():
        found = ScoresTable(cache, experiment, run_task)
        if not _goes_on(portal, found):
            return found
    return LiveTable(cache, experiment, run_task)


def _goes_on(portal: Portal, table: ScoresTable) -> bool:
    """Whether answers came after the scores were made."""
    ended, started = map(
        stamp_of, (table.experiment.outcome_file, table.experiment.submission_file)
    )
    if ended is not None and started is not None and started[2] < ended[2]:
        return False  # no round has started since the end of the last one
    row = portal.index.run_task(table.experiment.id, table.name)
    if row is None or row.state not in ("pending", "running", "paused"):
        return False
    unanswered = int((table.frame(["outcome"])["outcome"] == MISSING).sum())
    return row.answered > table.rows - unanswered
