"""A run task of a million samples: pages, facets and neighbours are right, and little is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import polars
import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import KEYS
from hpcbench.portal.sample_table import (
    COLUMNS_BYTES,
    ScoresTable,
    sample_cache_of,
    sample_table_of,
)
from hpcbench.portal.samples import OrderedSamples, SampleFilter, SampleOrder, facets_of, page_of
from hpcbench.portal.slow_work import NotYet
from tests.unit.portal.asking import portal_over, scored

ID = "20261120-1432-plan-aaaa"
COUNT = 1_000_000


def make(folder: Path) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]:
    """A run task of so many samples; returns their values."""
    scored(folder, [{"anls": 0.0, "meta.lang": "en"}], ("anls",), shard_size=1_000)
    here = Experiment(folder / "experiments" / ID)
    manifest = here.manifest_file.read_text()
    here.manifest_file.write_text(manifest.replace('"samples": 1,', f'"samples": {COUNT},'))
    values = numpy.random.default_rng(7).integers(0, 101, COUNT) / 100
    one = polars.read_parquet(here.scores_file("rt"))
    places = polars.int_range(COUNT, eager=True)
    whole = polars.select(
        *(polars.lit(one[name][0], kind).repeat_by(COUNT).explode().alias(name)
          for name, kind in one.schema.items() if kind != polars.List),
    )  # fmt: skip
    whole.with_columns(
        sample=polars.format("s{}", places),
        document=polars.format("d{}", places // 5),
        answer=polars.format("the answer to number {} is forty two", places),
        references=polars.concat_list(polars.format("reference {}", places)),
        anls=polars.Series(values),
        e2e_ms=(places * 7_919 % COUNT).cast(polars.Float64),  # each has one of its own
        **{"anls.numerator": polars.Series(values), "anls.denominator": polars.lit(1.0)},
    ).select(one.columns).write_parquet(
        here.scores_file("rt"), metadata={KEYS: json.dumps({"rows": COUNT})}
    )
    return values


@pytest.mark.long
def test_a_million_samples_are_paged_filtered_and_sorted(tmp_path: Path) -> None:
    values = make(tmp_path)
    portal = portal_over(tmp_path)
    table = sample_table_of(portal, ID, "rt")
    assert isinstance(table, ScoresTable)
    assert table.rows == COUNT
    middle = page_of(table, SampleFilter(), SampleOrder(), None, 50, skip=COUNT // 2)
    assert [row.sample for row in middle.items] == [f"s{COUNT // 2 + n}" for n in range(50)]
    order = numpy.argsort(values, kind="stable")
    first = page_of(table, SampleFilter(), SampleOrder("anls"), None, 200)
    second = page_of(table, SampleFilter(), SampleOrder("anls"), first.next, 200)
    places = [row.place for page in (first, second) for row in page.items]
    assert places == order[:400].tolist()
    assert [row.sample for row in second.items] == [f"s{place}" for place in order[200:400]]
    slowest = page_of(table, SampleFilter(), SampleOrder("latency", "desc"), None, 3)
    assert [row.latency for row in slowest.items] == [999.999, 999.998, 999.997]
    wrong = SampleFilter(wrong=True, low=0.5)
    wanted = numpy.flatnonzero((values >= 0.5) & (values < 1))
    found = page_of(table, wrong, SampleOrder(), None, 5)
    assert (found.total, [row.place for row in found.items]) == (len(wanted), wanted[:5].tolist())
    counts = {one.field: dict(one.counts) for one in facets_of(table, wrong)}
    assert sum(counts["score"].values()) == len(wanted)
    assert counts["lang"] == {"en": len(wanted)}
    number = len(wanted) // 2
    around = OrderedSamples(table, wrong, SampleOrder()).around(int(wanted[number]))
    assert around == (number, int(wanted[number - 1]), int(wanted[number + 1]))
    assert sample_cache_of(portal).columns._taken <= COLUMNS_BYTES


@pytest.mark.long
def test_texts_of_a_million_samples_are_looked_through_beside_the_requests(tmp_path: Path) -> None:
    make(tmp_path)
    portal = portal_over(tmp_path)
    chosen = SampleFilter(text="NUMBER 999999 ")
    with pytest.raises(NotYet) as wait:
        page_of(sample_table_of(portal, ID, "rt"), chosen, SampleOrder(), None, 5)
    wait.value.future.result(120)
    found = page_of(sample_table_of(portal, ID, "rt"), chosen, SampleOrder(), None, 5)
    assert [row.place for row in found.items] == [999_999]
