"""Pages of samples: the same rows, in the same order, as a plain reading of all of them gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.samples import SamplePage
from hpcbench.portal.sample_table import SampleTable, sample_table_of
from hpcbench.portal.samples import (
    OrderedSamples,
    SampleFilter,
    SampleOrder,
    facets_of,
    named,
    page_of,
)
from tests.campaign import examples
from tests.unit.portal.asking import NoIndex, evaluated, portal_over, running, scored
from tests.unit.portal.unguarded import unguarded
from tests.unit.small import record, response, write_attempt

ID = "20261120-1432-plan-aaaa"

WORDS = st.sampled_from(
    ["", "a", "Total", "tötal", "=1+1", "a.b", "<script>", "日本", "a\nb", "(", "ß"]
)
VALUES = st.sampled_from([None, 0.0, 0.25, 0.5, 1.0])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "outcome": st.sampled_from(["ok", "ok", "truncated", "failed", "refused", "missing"]),
            "reason": st.sampled_from([None, None, "no JSON", "=cmd"]),
            "mistake": st.sampled_from([None, None, "digit dropped", "truncated"]),
            "invalid": st.booleans(),
            "answer": st.none() | WORDS,
            "references": st.lists(WORDS, max_size=3),
            "anls": VALUES,
            "cer": VALUES,
            "meta.lang": st.sampled_from([None, "", "en", "ru"]),
            "document": st.sampled_from(["d1", "d2"]),
        }
    ),
    min_size=1,
    max_size=30,
)
CHOICES = st.builds(
    SampleFilter,
    text=st.sampled_from(["", "", "a", "TÖT", ".", "(", "s1", "<"]),
    outcome=st.sampled_from(["", "", "ok", "failed", "nothing"]),
    reason=st.sampled_from(["", "", "no JSON"]),
    mistake=st.sampled_from(["", "", "", "truncated"]),
    metric=st.sampled_from(["", "cer"]),
    low=st.sampled_from([None, None, 0.25]),
    high=st.sampled_from([None, None, 0.5]),
    where=st.sampled_from([(), (), (("lang", "en"),), (("lang", ""),)]),
    wrong=st.booleans(),
    flagged=st.booleans(),
)
ORDERS = st.builds(
    SampleOrder,
    by=st.sampled_from(["place", "sample", "outcome", "reason", "anls", "cer", "document", "lang"]),
    order=st.sampled_from(["asc", "desc"]),
)
FLAGGED = ("s0", "s3", "s7")


def by_hand(rows: list[dict[str, Any]], chosen: SampleFilter, ordered: SampleOrder) -> list[int]:
    """Places as a plain reading of all rows gives them."""
    found = [place for place, row in enumerate(rows) if holds(place, row, chosen)]
    column = {"lang": "meta.lang"}.get(ordered.by, ordered.by)
    if column == "place":
        return found[::-1] if ordered.down else found
    cells = [{**row, "sample": f"s{place}"}[column] for place, row in enumerate(rows)]
    having = [place for place in found if cells[place] is not None]
    having.sort(key=lambda place: cells[place], reverse=ordered.down)
    if ordered.down:  # of equals the lower place comes first in both orders
        having.sort(key=lambda place: place)
        having = sorted(having, key=lambda place: cells[place], reverse=True)
    return having + [place for place in found if cells[place] is None]


def holds(place: int, row: dict[str, Any], chosen: SampleFilter) -> bool:
    """Whether a row is chosen."""
    texts = [f"s{place}", row["answer"] or "", *row["references"]]
    if chosen.text and not any(chosen.text.lower() in text.lower() for text in texts):
        return False
    if chosen.outcome and row["outcome"] != chosen.outcome:
        return False
    if chosen.reason and row["reason"] != chosen.reason:
        return False
    value = row[chosen.metric or "anls"]
    if chosen.low is not None and (value is None or value < chosen.low):
        return False
    if chosen.high is not None and (value is None or value > chosen.high):
        return False
    for _, wanted in chosen.where:
        if (row["meta.lang"] or "") != wanted:
            return False
    if chosen.flagged and f"s{place}" not in FLAGGED:
        return False
    if chosen.mistake and row["mistake"] != chosen.mistake:
        return False
    return is_wrong(row) or not (chosen.wrong or chosen.mistake)


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether a row is wrong, unreadable or failed."""
    below = row["anls"] is not None and row["anls"] < 1 and row["outcome"] != "missing"
    failed = row["outcome"] in ("failed", "refused")
    return bool(below or failed or row["invalid"])


def pages(
    table: SampleTable, chosen: SampleFilter, ordered: SampleOrder, limit: int
) -> Iterator[SamplePage]:
    after: str | None = None
    while True:
        page = page_of(table, chosen, ordered, after, limit)
        yield page
        after = page.next
        if after is None:
            return


@pytest.mark.long
@settings(max_examples=examples(150))
@given(rows=ROWS, chosen=CHOICES, ordered=ORDERS, limit=st.integers(1, 9))
def test_pages_hold_what_a_plain_reading_of_all_rows_gives(
    rows: list[dict[str, Any]], chosen: SampleFilter, ordered: SampleOrder, limit: int
) -> None:
    with TemporaryDirectory() as name:
        portal = portal_over(Path(name))
        scored(Path(name), rows)
        table = sample_table_of(portal, ID, "rt")
        for sample in FLAGGED:
            table.cache.flags.mark(ID, "rt", sample)
        wanted = by_hand(rows, chosen, ordered)
        found = list(pages(table, chosen, ordered, limit))
        assert [row.place for page in found for row in page.items] == wanted
        assert {page.total for page in found} == {len(wanted)}
        assert all(len(page.items) == limit for page in found[:-1])
        for page in found:
            for row in page.items:
                cells = rows[row.place]
                assert row.outcome == cells["outcome"]
                assert dict(row.scores) == {"anls": cells["anls"], "cer": cells["cer"]}
                assert row.flagged == (row.sample in FLAGGED)
        order = OrderedSamples(table, chosen, ordered)
        for number, place in enumerate(wanted):
            before = wanted[number - 1] if number else None
            after = wanted[number + 1] if number + 1 < len(wanted) else None
            assert order.around(place) == (number, before, after)
        skipped = page_of(table, chosen, ordered, None, 5, skip=2)
        assert [row.place for row in skipped.items] == wanted[2:7]


@pytest.mark.long
@settings(max_examples=examples(80))
@given(rows=ROWS, chosen=CHOICES)
def test_facets_count_what_is_chosen_and_a_bin_of_scores_chooses_its_samples(
    rows: list[dict[str, Any]], chosen: SampleFilter
) -> None:
    with TemporaryDirectory() as name:
        portal = portal_over(Path(name))
        scored(Path(name), rows)
        table = sample_table_of(portal, ID, "rt")
        places = by_hand(rows, chosen, SampleOrder()) if not chosen.flagged else []
        found = {facet.field: dict(facet.counts) for facet in facets_of(table, chosen)}
        assert found.get("outcome", {}) == counted([rows[place]["outcome"] for place in places])
        assert found.get("reason", {}) == counted([rows[place]["reason"] for place in places])
        wrong = [rows[place]["mistake"] for place in places if is_wrong(rows[place])]
        assert found.get("mistake", {}) == counted(wrong)
        assert found.get("lang", {}) == counted([rows[place]["meta.lang"] for place in places])
        metric = chosen.metric or "anls"
        scores = [rows[place][metric] for place in places if rows[place][metric] is not None]
        assert sum(found.get("score", {}).values()) == len(scores)
        for label, count in found.get("score", {}).items():
            low, high = map(float, label.split(".."))
            assert count == sum(low <= score <= high for score in scores)


def counted(values: list[Any]) -> dict[str, int]:
    known = [value for value in values if value is not None]
    return {value: known.count(value) for value in known}


def table(folder: Path, rows: list[dict[str, Any]], **more: Any) -> SampleTable:
    scored(folder, rows, **more)
    return sample_table_of(portal_over(folder), ID, "rt")


def test_a_page_goes_on_where_it_was_while_rows_come_and_go(tmp_path: Path) -> None:
    rows = [{"anls": value} for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    one = table(tmp_path, rows)
    first = page_of(one, SampleFilter(), SampleOrder("anls"), None, 3)
    assert [row.place for row in first.items] == [0, 1, 2]
    # The row at which it goes on has another value now; nothing is shown twice, nothing is left out.
    other = table(tmp_path, [{"anls": value} for value in (0.1, 0.2, 0.9, 0.4, 0.5, 0.6)])
    rest = page_of(other, SampleFilter(), SampleOrder("anls"), first.next, 9)
    assert [row.place for row in rest.items] == [3, 4, 5, 2]
    assert first.version != rest.version


@pytest.mark.parametrize(
    "after", ["", "x", "bm8", "WzFd", "e30", "W1sxXSwwXQ", "WyJhIiwwXQ", "é", "A" * 3999]
)
def test_a_cursor_that_no_page_gave_is_refused(tmp_path: Path, after: str) -> None:
    with pytest.raises(PortalFault) as fault:
        page_of(table(tmp_path, [{"anls": 0.5}]), SampleFilter(), SampleOrder("anls"), after, 5)
    assert fault.value.code == "bad_request"


@pytest.mark.parametrize(
    "chosen",
    [
        SampleFilter(metric="nothing", low=0.0),
        SampleFilter(where=(("nothing", "x"),)),
        SampleFilter(where=(("../../etc/passwd", "x"),)),
    ],
)
def test_what_there_is_no_column_of_is_reported_with_what_there_is(
    tmp_path: Path, chosen: SampleFilter
) -> None:
    with pytest.raises(PortalFault) as fault:
        page_of(table(tmp_path, [{"anls": 0.5, "meta.lang": "en"}]), chosen, SampleOrder(), None, 5)
    assert fault.value.status == 400
    assert "known " in fault.value.remedy
    with pytest.raises(PortalFault, match="no column 'answer'"):
        page_of(table(tmp_path, [{}]), SampleFilter(), SampleOrder("answer"), None, 5)


def test_the_best_value_is_what_the_metric_says(tmp_path: Path) -> None:
    # Of an error rate less is better, and 0 is the best there is.
    one = table(tmp_path, [{"cer": 0.0}, {"cer": 0.5}, {"cer": 3.0}], metrics=("cer",))
    found = page_of(one, SampleFilter(wrong=True), SampleOrder(), None, 9)
    assert [row.place for row in found.items] == [1, 2]


def test_latency_and_tokens_are_columns_too(tmp_path: Path) -> None:
    times = [{"e2e_ms": 10.0 * (6 - number), "completion_tokens": 1} for number in range(6)]
    one = table(tmp_path, times)
    slow = page_of(one, SampleFilter(latency_over=0.035), SampleOrder("latency", "desc"), None, 9)
    assert [(row.place, row.latency) for row in slow.items] == [(0, 0.06), (1, 0.05), (2, 0.04)]
    assert {row.output_tokens for row in slow.items} == {1}
    assert page_of(one, SampleFilter(latency_over=0.06), SampleOrder(), None, 9).total == 0


# --- by their ids -----------------------------------------------------------------------------------------


def test_samples_are_found_by_their_ids_the_nearest_first(tmp_path: Path) -> None:
    ids = ["x5", "test/5", "55", "a(5)", "5", "5b", "é5.png", "none"]
    rows = [{"sample": name, "answer": "5 5 5", "anls": 1.0} for name in ids]
    one = table(tmp_path, rows)
    assert [row.sample for row in named(one, "5", 4)] == ["5", "55", "5b", "x5"]
    assert [row.place for row in named(one, "5", 4)] == [4, 2, 5, 0]
    for text, wanted in (
        ("A(5", ["a(5)"]), ("É5.", ["é5.png"]), (".", ["é5.png"]), ("NONE", ["none"]), ("5 5", []),
    ):  # fmt: skip
        assert [row.sample for row in named(one, text, 9)] == wanted


def test_samples_that_were_not_asked_are_found_too(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "1", "2", "3", "4", "5"], asked=4)
    (row,) = named(sample_table_of(portal_over(tmp_path), here.id, "rt"), "S5", 5)
    assert (row.place, row.sample, row.outcome) == (5, "s5", "missing")
    (tmp_path / "data" / "a.jsonl").unlink()
    blind = sample_table_of(portal_over(tmp_path), here.id, "rt")
    assert [row.place for row in named(blind, "s", 9)] == [0, 1, 2, 3]


# --- while it runs ----------------------------------------------------------------------------------------


def test_a_run_task_that_runs_shows_answers_without_scores_and_samples_not_asked(
    tmp_path: Path,
) -> None:
    here = running(tmp_path, ["0", "no", None, "3", "four", "5", "6"], asked=5)
    one = sample_table_of(portal_over(tmp_path), here.id, "rt")
    page = page_of(one, SampleFilter(), SampleOrder(), None, 50)
    assert page.live
    assert [row.sample for row in page.items] == [f"s{number}" for number in range(7)]
    outcomes = [row.outcome for row in page.items]
    assert outcomes == ["ok", "ok", "failed", "ok", "ok", "missing", "missing"]
    assert [row.answer for row in page.items[:3]] == ["0", "no", None]
    assert {str(dict(row.scores)) for row in page.items} == {"{}"}
    for chosen, places in (
        (SampleFilter(outcome="missing"), [5, 6]),
        (SampleFilter(outcome="ok"), [0, 1, 3, 4]),
        (SampleFilter(wrong=True), [2]),
        (SampleFilter(text="FOUR"), [4]),
        (SampleFilter(text="s6"), [6]),
        (SampleFilter(text="6"), [6]),
    ):
        found = page_of(one, chosen, SampleOrder(), None, 50)
        assert [row.place for row in found.items] == places, chosen
    facets = {one.field: dict(one.counts) for one in facets_of(one, SampleFilter())}
    assert facets == {"outcome": {"ok": 4, "missing": 2, "failed": 1}}


def test_answers_that_come_in_are_there_at_the_next_look(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "1", "2", "3", "4", "5"], asked=4)
    portal = portal_over(tmp_path)
    before = page_of(
        sample_table_of(portal, here.id, "rt"), SampleFilter(outcome="ok"), SampleOrder(), None, 9
    )
    write_attempt(here, 1, 1, [response("s4", "4")], "drained")
    after = page_of(
        sample_table_of(portal, here.id, "rt"), SampleFilter(outcome="ok"), SampleOrder(), None, 9
    )
    assert (before.total, after.total) == (4, 5)
    assert before.version != after.version


def test_scores_that_answers_have_overtaken_give_way_to_the_answers(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "1", "2", "3", "4"], asked=4)
    from hpcbench.evaluation.stage import evaluate

    evaluate(here)
    portal = portal_over(tmp_path)
    assert not sample_table_of(portal, here.id, "rt").live
    assert isinstance(portal.index, NoIndex)
    portal.index.row = SimpleNamespace(state="running", answered=5)
    assert sample_table_of(portal, here.id, "rt").live
    portal.index.row = SimpleNamespace(state="done", answered=5)
    assert not sample_table_of(portal, here.id, "rt").live


def test_times_are_the_same_before_the_scores_are_made_and_after(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", None, "2", "3", "4"])
    portal = portal_over(tmp_path)

    def rows() -> list[tuple[float | None, int | None]]:
        page = page_of(
            sample_table_of(portal, here.id, "rt"), SampleFilter(), SampleOrder(), None, 9
        )
        return [(row.latency, row.output_tokens) for row in page.items]

    before = rows()
    from hpcbench.evaluation.stage import evaluate

    evaluate(here)
    assert rows() == before
    assert before[0][0]
    assert before[1][0] is None


def test_without_its_dataset_a_run_task_that_runs_shows_what_was_answered(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "1", "2", "3", "4", "5"], asked=5)
    (tmp_path / "data" / "a.jsonl").unlink()
    one = sample_table_of(portal_over(tmp_path), here.id, "rt")
    page = page_of(one, SampleFilter(), SampleOrder(), None, 9)
    assert [row.sample for row in page.items] == ["s0", "s1", "s2", "s3", "s4", "#5"]
    assert page_of(one, SampleFilter(outcome="ok"), SampleOrder(), None, 9).total == 5


def test_damaged_lines_and_two_attempts_are_read_as_everywhere(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "1", "2", "3"], asked=2)
    path = here.shard_responses("rt", 0, 1)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"text":"1"', b'"text":1') + b'{"sample_id":"s2","out')
    write_attempt(here, 0, 2, [response("s0", "later"), response("s1", "again")])
    one = sample_table_of(portal_over(tmp_path), here.id, "rt")
    page = page_of(one, SampleFilter(), SampleOrder(), None, 9)
    assert [row.answer for row in page.items] == ["0", "again", None, None]
    assert page_of(one, SampleFilter(outcome="ok"), SampleOrder(), None, 9).total == 2


# --- over HTTP ---------------------------------------------------------------------------------------------


@pytest.fixture
def portal(tmp_path: Path) -> Portal:
    evaluated(tmp_path, ["0", "no", "2", None, "4", "5"])
    return portal_over(tmp_path)


def test_the_api_gives_pages_with_tags_and_says_when_nothing_changed(portal: Portal) -> None:
    with unguarded(portal) as api:
        path = f"experiments/{ID}/run-tasks/rt/samples?limit=2"
        first = api.ask("GET", path)
        assert (first.status, len(first.body["items"]), first.body["total"]) == (200, 2, 6)
        again = api.ask("GET", path, If_None_Match=first.headers["etag"])
        assert (again.status, again.body) == (304, None)
        marked = api.ask("PUT", f"experiments/{ID}/run-tasks/rt/samples/1/flag")
        assert marked.body == {"flagged": True, "note": ""}
        changed = api.ask("GET", path, If_None_Match=first.headers["etag"])
        assert [row["flagged"] for row in changed.body["items"]] == [False, True]


def test_names_that_are_none_are_not_found(portal: Portal) -> None:
    paths = [
        f"experiments/{ID}/run-tasks/../samples",
        f"experiments/{ID}/run-tasks/%2e%2e%2f%2e%2e%2fmanifest/samples",
        f"experiments/{ID}/run-tasks/rt%00/samples",
        f"experiments/{ID}/run-tasks/{'x' * 150}/samples",
        "experiments/..%2f..%2fetc/run-tasks/rt/samples",
        "experiments/nothing/run-tasks/rt/samples/0",
        f"experiments/{ID}/run-tasks/rt/samples/999",
        f"experiments/{ID}/run-tasks/rt/samples/999/images/0",
        f"experiments/{ID}/run-tasks/rt/samples/0/images/7",
    ]
    with unguarded(portal) as api:
        for path in paths:
            found = api.ask("GET", path)
            assert found.status == 404, path
            assert "/" not in found.body["error"].replace("run task", "")[:40], path


def test_questions_that_make_no_sense_are_refused(portal: Portal) -> None:
    with unguarded(portal) as api:
        for query in (
            "limit=201", "limit=0", "where=x", "low=nan", "order=up", "skip=-1", "low=inf"
        ):  # fmt: skip
            found = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples?{query}")
            assert found.status in (400, 422), query
            assert found.body["code"] == "bad_request", query


def test_the_api_finds_samples_by_their_ids(portal: Portal) -> None:
    with unguarded(portal) as api:
        path = f"experiments/{ID}/run-tasks/rt/samples/named"
        found = api.ask("GET", f"{path}?text=S3")
        assert [(row["place"], row["sample"]) for row in found.body] == [(3, "s3")]
        assert len(api.ask("GET", f"{path}?text=s").body) == 5
        assert api.ask("GET", f"{path}?text=").status == 422


def test_scores_that_cannot_be_read_are_reported_with_what_makes_them(
    portal: Portal, tmp_path: Path
) -> None:
    (tmp_path / "experiments" / ID / "scores" / "rt.parquet").write_bytes(b"PAR1 but no more")
    with unguarded(portal) as api:
        found = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples")
        assert (found.status, found.body["code"]) == (500, "unreadable")
        assert f"hpcbench score {ID}" in found.body["remedy"]


def test_hostile_texts_come_as_they_are(tmp_path: Path) -> None:
    texts = [
        "</script><img src=x onerror=alert(1)>",
        "\x1b[31mred",
        "\u202egnp",
        "a\ud800b",
        "=cmd()",
    ]
    lines = [record(number, id=text.replace("\ud800", "")) for number, text in enumerate(texts)]
    running(tmp_path, texts, lines)
    with unguarded(portal_over(tmp_path)) as api:
        found = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples")
        assert found.headers["content-type"] == "application/json"
        answers = [row["answer"] for row in found.body["items"]]
        assert answers == [*texts[:3], "a\\ud800b", texts[4]]
        one = api.ask("GET", f"experiments/{ID}/run-tasks/rt/samples/3")
        assert one.body["answer"] == "a\\ud800b"


def test_numbers_that_are_none_are_never_sent(tmp_path: Path) -> None:
    one = table(tmp_path, [{"anls": math.inf}, {"anls": 0.5}, {"anls": math.nan}])
    found = [
        dict(row.scores)["anls"]
        for row in page_of(one, SampleFilter(), SampleOrder("anls"), None, 9).items
    ]
    assert 0.5 in found
    assert (
        SamplePage.model_validate_json(
            page_of(one, SampleFilter(), SampleOrder(), None, 9).model_dump_json()
        ).total
        == 3
    )
