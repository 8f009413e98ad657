"""The index: what is put in comes out, the same way from SQLite and from PostgreSQL."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from hpcbench.portal.index import (
    BadCursor,
    DerivedFacts,
    Entry,
    ExperimentQuery,
    ExperimentSort,
    IndexFault,
    Order,
    RunTaskQuery,
    RunTaskSort,
    open_index,
)
from hpcbench.portal.index.sql_index import Index
from hpcbench.status import ExperimentStatus, ShardCounts
from tests.unit.portal.rows import entry, run_task, score


def ids(index: Index, **query: object) -> list[str]:
    return [row.id for row in index.experiments(ExperimentQuery(**query)).items]  # type: ignore[arg-type]


def names(index: Index, **query: object) -> list[str]:
    return [row.name for row in index.run_tasks(RunTaskQuery(**query)).items]  # type: ignore[arg-type]


def test_an_entry_comes_out_as_it_was_put_in(index: Index) -> None:
    task = run_task(scores=(score(0.25, low=0.2, high=0.3), score(None, "cer")), latency_p50=0.125)
    reported = entry(
        run_tasks=[task], score=score(0.25), baselines=("good",), rate=1 / 3, verdict="GO"
    )
    index.put([reported])
    assert index.experiment("e1") == reported.row.model_copy(update={"trend": (0.25,)})
    assert index.run_task("e1", "rt") == task
    assert index.account("e1") == reported.account
    assert index.stamps() == {"e1": "[]"}


def test_what_is_not_known_is_none(index: Index) -> None:
    assert index.experiment("nobody") is None
    assert index.account("nobody") is None
    assert index.run_task("nobody", "rt") is None
    assert index.known("nobody") is None
    assert index.version("nobody") == 0
    assert index.matrix("nobody") == ()
    assert index.experiments(ExperimentQuery()).items == ()


def test_filters_take_any_of_their_values_and_all_of_the_filters(index: Index) -> None:
    index.put([
        entry("e1", [run_task("a", "e1", model="tiny", dataset="docs/test")]),
        entry("e2", [run_task("a", "e2", model="tiny"), run_task("b", "e2", model="huge")], plan="weekly"),
        entry("e3", [run_task("a", "e3", model="huge", state="failed")], state="incomplete"),
    ])  # fmt: skip
    assert ids(index, models=("tiny",)) == ["e2", "e1"]
    assert ids(index, models=("tiny", "huge")) == ["e3", "e2", "e1"]
    assert ids(index, models=("huge",), states=("done",)) == ["e2"]
    assert ids(index, datasets=("docs/test",)) == ["e1"]
    assert ids(index, plans=("weekly",)) == ["e2"]
    assert names(index, experiment="e2", models=("huge",)) == ["b"]
    assert names(index, states=("failed",)) == ["a"]
    assert index.run_tasks(RunTaskQuery()).total == 4


def test_text_finds_words_whatever_their_capitals_and_has_no_wildcards(index: Index) -> None:
    index.put([
        entry("e1", [run_task("a", "e1", model="Qwen-VL")]),
        entry("e2", [run_task("b", "e2", model="100%_right")]),
        entry("e3", [run_task("c", "e3", model="STRASSE")]),
    ])  # fmt: skip
    assert ids(index, text="qwen") == ["e1"]
    assert ids(index, text="NIGHTLY vl") == ["e1"]
    assert ids(index, text="%_") == ["e2"]
    assert ids(index, text="%") == ["e2"]
    assert ids(index, text="_") == ["e2"]
    assert ids(index, text="\\") == []
    assert ids(index, text="straße") == ["e3"]
    assert names(index, text="100% b") == ["b"]
    assert ids(index, text="   ") == ["e3", "e2", "e1"]


def test_no_text_that_a_client_can_send_is_too_much_for_the_database(index: Index) -> None:
    index.put([entry()])
    for text in ("\0", "\ud800", "'; drop table experiments; --", "ﬁ" * 5000, "😀", "a " * 3000):
        assert ids(index, text=f"x{text}") == []
        assert ids(index, states=(text,), models=(text,), plans=(text,)) == []
        assert names(index, experiment=text) == []
        assert index.experiment(text) is None
        assert index.run_task(text, text) is None
        index.search(text)


def test_text_is_sorted_by_its_code_points_in_every_database(index: Index) -> None:
    plans = ["Zeta", "a", "a b", "a-b", "ä", "b", "é", "z", "日本", "😀", "_", "10", "9"]
    index.put([entry(f"e{number}", plan=plan) for number, plan in enumerate(plans)])
    found = [row.plan for row in index.experiments(ExperimentQuery(sort="plan", order="asc")).items]
    assert found == sorted(plans)
    down = [row.plan for row in index.experiments(ExperimentQuery(sort="plan", order="desc")).items]
    assert down == sorted(plans, reverse=True)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_what_has_no_value_comes_last_in_both_orders(index: Index, order: str) -> None:
    scores = {"e1": 0.5, "e2": None, "e3": 0.1, "e4": None}
    index.put(
        [
            entry(name, score=None if value is None else score(value))
            for name, value in scores.items()
        ]
    )
    found = ids(index, sort="score", order=order)
    assert found[:2] == (["e3", "e1"] if order == "asc" else ["e1", "e3"])
    assert set(found[2:]) == {"e2", "e4"}


def test_experiments_can_be_sorted_by_every_column(index: Index) -> None:
    index.put([entry(f"e{number}") for number in range(5)])
    for sort in get_args(ExperimentSort):
        first = index.experiments(ExperimentQuery(sort=sort, limit=3))
        rest = index.experiments(ExperimentQuery(sort=sort, limit=3, after=first.next))
        assert sorted(row.id for row in (*first.items, *rest.items)) == [
            f"e{number}" for number in range(5)
        ], sort
        assert rest.next is None, sort


def test_run_tasks_can_be_sorted_by_every_column(index: Index) -> None:
    index.put(
        [entry(one, [run_task(f"r{number}", one) for number in range(3)]) for one in ("e1", "e2")]
    )
    for sort in get_args(RunTaskSort):
        first = index.run_tasks(RunTaskQuery(sort=sort, limit=4))
        rest = index.run_tasks(RunTaskQuery(sort=sort, limit=4, after=first.next))
        assert len({(row.experiment, row.name) for row in (*first.items, *rest.items)}) == 6, sort
        assert rest.next is None, sort


def test_a_cursor_of_another_list_or_of_no_list_is_refused(index: Index) -> None:
    index.put([entry(f"e{number}") for number in range(5)])
    mine = index.experiments(ExperimentQuery(limit=2)).next
    assert mine is not None
    for query in (
        ExperimentQuery(limit=2, sort="plan", after=mine),
        ExperimentQuery(limit=2, order="asc", after=mine),
        ExperimentQuery(limit=2, text="e", after=mine),
        ExperimentQuery(after=mine[:-4]),
        ExperimentQuery(after="AAAA"),
        ExperimentQuery(after="é"),
        ExperimentQuery(after="W10"),
        ExperimentQuery(after="[" * 4000),
    ):
        with pytest.raises(BadCursor):
            index.experiments(query)
    assert index.experiments(
        ExperimentQuery(limit=3, after=mine)
    ).items  # another limit is the same list


def test_facets_count_and_leave_their_own_filter_out(index: Index) -> None:
    index.put([
        entry("e1", [run_task("a", "e1", model="tiny")]),
        entry("e2", [run_task("a", "e2", model="huge"), run_task("b", "e2", model="tiny")], state="running"),
    ])  # fmt: skip
    found = {
        one.field: one.counts for one in index.experiment_facets(ExperimentQuery(models=("huge",)))
    }
    assert found["model"] == (("tiny", 2), ("huge", 1))
    assert found["state"] == (("running", 1),)
    assert found["plan"] == (("nightly", 1),)
    tasks = {one.field: one.counts for one in index.run_task_facets(RunTaskQuery(experiment="e2"))}
    assert tasks["model"] == (("huge", 1), ("tiny", 1))
    index.remove(["e2"])
    again = {one.field: one.counts for one in index.experiment_facets(ExperimentQuery())}
    assert again["state"] == (("done", 1),)


def test_a_trend_is_the_plans_last_ten_up_to_the_experiment(index: Index) -> None:
    index.put([
        *(entry(f"e{number:02d}", created=float(number), score=score(number / 100)) for number in range(15)),
        entry("other", created=3.5, plan="weekly", score=score(0.9)),
        entry("unscored", created=7.5),
        entry("metric", created=8.5, score=score(0.7, "cer")),
    ])  # fmt: skip
    newest, older = index.experiment("e14"), index.experiment("e03")
    assert newest is not None and older is not None
    assert newest.trend == tuple(number / 100 for number in range(5, 15))
    assert older.trend == (0.0, 0.01, 0.02, 0.03)
    listed = {row.id: row.trend for row in index.experiments(ExperimentQuery()).items}
    assert listed["other"] == (0.9,)
    assert listed["unscored"] == ()
    assert listed["metric"] == (0.7,)
    assert listed["e14"] == newest.trend


def scored(identity: str, values: dict[tuple[str, str], float | None], **more: object) -> Entry:
    """An experiment with values by dataset and metric."""
    tasks = [
        run_task(
            experiment=identity, name=f"rt{place}", dataset=key[0], scores=(score(value, key[1]),)
        )
        for place, (key, value) in enumerate(values.items())
    ]
    return entry(identity, tasks, **more)


def test_requested_columns_have_values_trends_and_changes_to_the_plans_baseline(
    index: Index,
) -> None:
    anls, cer = ("docs/test", "anls"), ("pages", "cer")
    index.put([
        scored("old", {anls: 0.5, cer: 0.2}, created=1.0),
        scored("first", {anls: 0.6}, created=2.0, baselines=("main",)),
        scored("last", {anls: 0.7}, created=3.0, baselines=("main", "other")),
        scored("new", {anls: 0.8, cer: None}, created=4.0),
        scored("weekly", {anls: 0.1}, created=5.0, plan="weekly"),
    ])  # fmt: skip
    page = index.experiments(ExperimentQuery(columns=(anls, cer, ("nothing", "x"))))
    found = {row.id: {(one.dataset, one.metric): one for one in row.scores} for row in page.items}
    assert {name: set(scores) for name, scores in found.items()} == {
        "old": {anls, cer}, "first": {anls}, "last": {anls}, "new": {anls}, "weekly": {anls},
    }  # fmt: skip
    assert found["new"][anls].trend == (0.5, 0.6, 0.7, 0.8)
    assert found["first"][anls].trend == (0.5, 0.6)
    assert found["weekly"][anls].trend == (0.1,)
    changes = {name: scores[anls].change for name, scores in found.items()}
    assert changes == {
        "old": pytest.approx(-0.2), "first": pytest.approx(-0.1), "last": None,
        "new": pytest.approx(0.1), "weekly": None,
    }  # fmt: skip
    assert all(row.scores == () for row in index.experiments(ExperimentQuery()).items)


def test_a_column_of_several_run_tasks_is_their_mean_without_an_interval(index: Index) -> None:
    tasks = [
        run_task(name=model, model=model, dataset="d", scores=(score(value, low=0.1, high=0.9),))
        for model, value in (("m1", 0.2), ("m2", 0.4), ("m3", None))
    ]
    index.put([entry("e1", tasks), scored("e2", {("d", "anls"): 0.7})])
    rows = index.experiments(
        ExperimentQuery(columns=(("d", "anls"),), sort="id", order="asc")
    ).items
    (several,), (single,) = (row.scores for row in rows)
    assert (several.value, several.low, several.run_tasks) == (pytest.approx(0.3), None, 2)
    assert (single.value, single.run_tasks) == (0.7, 1)


@pytest.mark.parametrize(("order", "found"), [("desc", "bca"), ("asc", "acb")])
def test_experiments_are_sorted_by_a_column_without_a_value_last(
    index: Index, order: Order, found: str
) -> None:
    anls = ("d", "anls")
    index.put([
        scored("a", {anls: 0.1}), scored("b", {anls: 0.9}), scored("c", {anls: 0.5}),
        scored("none", {("d", "cer"): 0.3}),
    ])  # fmt: skip
    rows, after = [], None
    for _ in range(2):
        page = index.experiments(ExperimentQuery(sort=anls, order=order, limit=2, after=after))
        rows += [row.id for row in page.items]
        after = page.next
    assert (rows, after) == ([*found, "none"], None)


def test_score_columns_are_counted_in_the_filtered_experiments(index: Index) -> None:
    index.put([
        scored("a", {("d", "anls"): 0.1, ("e", "cer"): 0.2}), scored("b", {("d", "anls"): 0.9}),
        scored("c", {("f", "anls"): 0.5}, plan="weekly"),
    ])  # fmt: skip
    found = index.score_columns(ExperimentQuery())
    assert [(one.dataset, one.metric, one.experiments) for one in found] == [
        ("d", "anls", 2), ("e", "cer", 1), ("f", "anls", 1),
    ]  # fmt: skip
    weekly = index.score_columns(ExperimentQuery(plans=("weekly",)))
    assert [one.dataset for one in weekly] == ["f"]
    index.put([scored("a", {("e", "cer"): 0.2})])
    assert [one.experiments for one in index.score_columns(ExperimentQuery())] == [1, 1, 1]
    index.remove(["a", "b"])
    assert [one.dataset for one in index.score_columns(ExperimentQuery())] == ["f"]


def test_leading_metrics_come_first_among_score_columns(index: Index) -> None:
    tasks = [
        run_task(name=dataset, dataset=dataset, scores=(score(0.5, "f1"), score(0.4, "exact")))
        for dataset in ("d", "e")
    ]
    index.put([entry("a", tasks)])
    found = index.score_columns(ExperimentQuery())
    assert [(one.dataset, one.metric) for one in found] == [
        ("d", "f1"), ("e", "f1"), ("d", "exact"), ("e", "exact"),
    ]  # fmt: skip


def test_a_matrix_shows_states_while_it_runs_and_then_scores(index: Index) -> None:
    cells = [("m1", "d1", 0.5), ("m1", "d2", 0.7), ("m2", "d1", 0.9)]

    def tasks(scored: bool) -> list[object]:
        return [
            run_task(f"{model}-{dataset}", "e1", model=model, dataset=dataset,
                     state="done" if scored else "running", scores=(score(value),) if scored else ())
            for model, dataset, value in cells
        ]  # fmt: skip

    index.put([entry("e1", tasks(scored=False))])  # type: ignore[arg-type]
    (before,) = index.matrix("e1")
    assert before.metric is None
    assert before.columns == ("d1", "d2")
    assert [cell and cell.state for cell in before.rows[1].cells] == ["running", None]
    index.put([entry("e1", tasks(scored=True))])  # type: ignore[arg-type]
    (after,) = index.matrix("e1")
    assert after.metric == "anls"
    leading = {cell.run_task for row in after.rows for cell in row.cells if cell and cell.leads}
    assert leading == {"m2-d1"}


def test_a_matrix_tells_prompts_of_one_model_apart(index: Index) -> None:
    tasks = [
        run_task(name, prompt=prompt)
        for name, prompt in [("a", "short"), ("b", "long"), ("c", "long")]
    ]
    index.put([entry("e1", [*tasks, run_task("o", ml_task="ocr")])])
    vqa, ocr = index.matrix("e1")
    assert [row.variant for row in vqa.rows] == ["short", "b", "c"]
    assert [row.variant for row in ocr.rows] == [""]


def test_the_palette_finds_beginnings_of_names_and_of_their_words(index: Index) -> None:
    for name in ("20261120-1432-demo-k3f9", "20261121-0900-demo-aaaa"):
        index.put([entry(name, [run_task("docvqa-qwen2-vl", name, model="Qwen2-VL-7B")])])

    def found(text: str) -> list[tuple[str, str]]:
        return [(hit.kind, hit.name) for hit in index.search(text)]

    assert found("k3f9") == [("experiment", "20261120-1432-demo-k3f9")]
    assert found("QWEN")[0] == ("model", "Qwen2-VL-7B")
    assert ("run_task", "docvqa-qwen2-vl") in found("qwen")
    assert found("7b") == [("model", "Qwen2-VL-7B")]
    assert found("vl docvqa") == [("run_task", "docvqa-qwen2-vl")] * 2
    assert found("wen") == []
    assert found("") == []
    newest = ["20261121-0900-demo-aaaa", "20261120-1432-demo-k3f9"]
    assert [hit.experiment for hit in index.search("docvqa")] == newest
    assert [hit.experiment for hit in index.search("docvqa k3f9")] == newest[1:]
    index.remove(["20261120-1432-demo-k3f9", "20261121-0900-demo-aaaa"])
    assert found("qwen") == []


def test_the_palette_finds_a_run_task_in_each_of_its_experiments(index: Index) -> None:
    ids = [f"20261120-{hour:02}00-nightly-aa{hour:02}" for hour in range(12)]
    index.put([entry(one, [run_task("vqa-hard", one), run_task("vqa", one)]) for one in ids])
    assert [hit.experiment for hit in index.search("vqa-hard", 20)] == ids[::-1]
    assert [hit.name for hit in index.search("vqa", 6)] == ["vqa"] * 3 + ["vqa-hard"] * 3
    (old,) = index.search("vqa-hard aa00", 5)
    assert (old.name, old.experiment) == ("vqa-hard", ids[0])
    assert index.search("aa00 AA01") == ()
    assert index.search("vqa %") == ()


def test_every_change_has_a_greater_number_and_no_change_has_none(index: Index) -> None:
    index.put([entry("e1"), entry("e2")])
    first, one = index.version(), index.version("e1")
    index.put([entry("e1"), entry("e2")])
    assert index.version() == first
    index.put([entry("e2", updated=3000.0)])
    assert index.version() > first
    assert index.version("e1") == one
    assert index.version("e2") > one
    changed = index.version()
    index.remove(["e1"])
    assert index.version() > changed
    assert index.version("e1") == 0
    gone = index.version()
    index.remove(["e1", "never"])
    assert index.version() == gone


def test_run_tasks_that_are_gone_from_an_entry_are_gone(index: Index) -> None:
    index.put([entry("e1", [run_task("a", "e1", model="x"), run_task("b", "e1", model="y")])])
    index.put([entry("e1", [run_task("b", "e1", model="y", answered=3)])])
    assert names(index) == ["b"]
    assert ids(index, models=("x",)) == []
    assert ids(index, models=("y",)) == ["e1"]


def test_what_was_kept_counts_as_long_as_the_stamp_does(index: Index) -> None:
    status = ExperimentStatus(
        time=1.0, id="e1", state="done", path="/x", executor="slurm", round=1, max_resubmits=2, samples=1,
        answered=1, shards=ShardCounts(done=1), run_tasks=(),
    )  # fmt: skip
    reported = entry("e1", stamp="one")
    index.put([reported])
    index.keep("e1", "one", DerivedFacts(status))
    assert index.known("e1") == DerivedFacts(status)
    assert index.unknown() == []
    index.put([replace(reported, stamp="two")])
    assert index.known("e1") is None
    assert index.unknown() == ["e1"]
    index.keep("e1", "two", DerivedFacts(replace(status, time=2.0)))
    found = index.known("e1")
    assert found is not None and found.status.time == 2.0


def test_homes_in_one_database_do_not_see_each_other(database: str | None, tmp_path: Path) -> None:
    url = database or f"sqlite:///{tmp_path / 'shared.sqlite'}"
    one, other = open_index(url, tmp_path / "one"), open_index(url, tmp_path / "other")
    one.put([entry("mine", [run_task("a", "mine", model="secret")])])
    other.put([entry("theirs")])
    assert ids(other) == ["theirs"]
    assert other.experiment("mine") is None
    assert other.search("secret") == ()
    assert other.experiment_facets(ExperimentQuery())[1].counts == (("m", 1),)
    other.remove(["mine"])
    assert ids(one) == ["mine"]
    one.close()
    other.close()


@pytest.mark.long
def test_two_portals_may_write_at_once(database: str | None, tmp_path: Path) -> None:
    portals = [open_index(database, tmp_path) for _ in range(2)]
    faults: list[Exception] = []

    def write(index: Index, number: int) -> None:
        try:
            for turn in range(15):
                index.put([entry(f"e{one}", answered=turn * 10 + number) for one in range(4)])
                index.remove([f"e{turn % 4}"])
        except Exception as fault:  # noqa: BLE001 - whatever it is, the test is to show it
            faults.append(fault)

    threads = [
        threading.Thread(target=write, args=(one, number)) for number, one in enumerate(portals)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    for one in portals:
        one.put([entry(f"e{number}") for number in range(4)])
        assert ids(one, order="asc") == ["e0", "e1", "e2", "e3"]
        one.close()


def test_lists_are_counted_no_further_than_asked(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.portal.index.queries.COUNTED_TO", 5)
    index.put([entry(f"e{number}") for number in range(8)])
    page = index.experiments(ExperimentQuery(limit=2))
    assert (page.total, page.counted_to) == (5, 5)


def test_an_address_that_is_none_is_reported_without_its_password(tmp_path: Path) -> None:
    for url in (
        "mysql://u:geheim@host/db",
        "nonsense",
        "sqlite://",
        "postgresql://u:geheim@127.0.0.1:1/db",
    ):
        with pytest.raises(IndexFault) as caught:
            open_index(url, tmp_path)
        assert "geheim" not in str(caught.value)
