"""Runs side by side: what the portal says is what `hpcbench compare` says, and every sample is somewhere."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcbench.comparison.account import account
from hpcbench.comparison.flips import CHANGES
from hpcbench.experiment.layout import Experiment
from hpcbench.portal import comparison
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import LruCache
from hpcbench.portal.slow_work import NotYet, Progress, SlowWork, patiently
from tests.unit.portal.asking import evaluated, portal_over, scored
from tests.unit.portal.unguarded import Unguarded, unguarded
from tests.unit.small import record, resolved, run_task

A, B, C = (f"20261120-1432-plan-{letter * 4}" for letter in "abc")


def home(folder: Path, **values: Mapping[str, list[float | None]]) -> Path:
    """Experiments `a`, `b`, … with these values: metric → value of each sample."""
    for letter, metrics in values.items():
        count = len(next(iter(metrics.values())))
        rows = [
            {
                "document": f"d{place // 2}",
                "answer": f"{letter} says {place}",
                "references": [f"right {place}"],
                **{name: column[place] for name, column in metrics.items()},
                **{f"{name}.numerator": column[place] for name, column in metrics.items()},
                **{f"{name}.denominator": 1.0 for name in metrics},
            }
            for place in range(count)
        ]
        scored(folder, rows, tuple(metrics), f"20261120-1432-plan-{letter * 4}")
    return folder


OLD = [1.0, 1.0, 0.0, 0.5, 0.2, 0.0, 1.0, 0.9]
NEW = [1.0, 0.0, 0.0, 0.5, 0.9, 0.1, 0.7, 0.9]


def test_a_flip_says_why_there_is_no_answer_or_why_none_is_read(tmp_path: Path) -> None:
    ends: list[dict[str, Any]] = [
        {"answer": "yes"},
        {"answer": "", "outcome": "invalid", "reason": "empty"},
        {"answer": None, "outcome": "failed"},
    ]
    for letter, value in (("a", 1.0), ("b", 0.0)):
        rows = [
            {
                "document": f"d{place}", "references": ["yes"], "anls": value, "anls.numerator": value,
                "anls.denominator": 1.0, **({"answer": "yes"} if letter == "a" else end),
            }
            for place, end in enumerate(ends)
        ]  # fmt: skip
        scored(tmp_path, rows, ("anls",), f"20261120-1432-plan-{letter * 4}")
    with unguarded(portal_over(tmp_path)) as api:
        reported = [(one["answers"][1], one["notes"][1]) for one in flips(api, "lost")]
    assert sorted(reported, key=str) == [("", "empty"), ("yes", ""), (None, "failed")]


def ask(api: Unguarded, path: str) -> Any:
    found = api.ask("GET", path)
    assert found.status == 200, found.body
    return found.body


def flips(api: Unguarded, change: str = "", limit: int = 3, more: str = "") -> list[dict[str, Any]]:
    """All rows, page by page."""
    rows: list[dict[str, Any]] = []
    after = 0
    while True:
        query = f"baseline={A}&candidate={B}&limit={limit}&after={after}{more}"
        page = ask(api, f"compare/flips?{query}" + (f"&change={change}" if change else ""))
        rows += page["items"]
        if page["next"] is None:
            assert len(rows) == page["total"]
            return rows
        after = int(page["next"])


def test_every_sample_is_won_lost_or_done_alike_the_greatest_change_first(tmp_path: Path) -> None:
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        found = {change: flips(api, change) for change in CHANGES}
        places = {change: [row["places"][0] for row in rows] for change, rows in found.items()}
        assert places == {
            "won": [4, 5],
            "lost": [1, 6],
            "both_right": [0],
            "both_partly": [3, 7],
            "both_wrong": [2],
        }
        assert [row["places"][0] for row in flips(api)] == [1, 4, 6, 5]
        first = flips(api)[0]
        assert first["scores"] == [1.0, 0.0]
        assert first["answers"] == ["a says 1", "b says 1"]
        assert first["notes"] == ["", ""]
        assert (first["references"], first["change"]) == (["right 1"], "lost")
        page = ask(api, f"compare/flips?baseline={A}&candidate={B}")
        assert page["counts"] == {
            "won": 2,
            "lost": 2,
            "both_right": 1,
            "both_partly": 2,
            "both_wrong": 1,
        }


def mistaken(folder: Path) -> Path:
    """Two runs: two samples lost, one won, one wrong in both, with groups and kinds of mistakes."""
    runs = {
        A: [(1.0, None), (1.0, None), (0.0, "truncated"), (0.0, "truncated")],
        B: [(0.0, "digit dropped"), (0.0, "truncated"), (1.0, None), (0.0, "digit dropped")],
    }
    for name, samples in runs.items():
        rows = [
            {
                "document": f"d{place}", "answer": "x", "references": ["y"], "anls": value,
                "anls.numerator": value, "anls.denominator": 1.0, "mistake": mistake,
                "meta.lang": ["de", "de", "en", None][place],
            }
            for place, (value, mistake) in enumerate(samples)
        ]  # fmt: skip
        scored(folder, rows, ("anls",), name)
    return folder


def test_flips_are_counted_and_filtered_by_group_and_by_the_mistake_of_the_worse_answer(
    tmp_path: Path,
) -> None:
    with unguarded(portal_over(mistaken(tmp_path))) as api:

        def found(more: str) -> tuple[list[str], dict[str, dict[str, int]]]:
            page = ask(api, f"compare/flips?baseline={A}&candidate={B}{more}")
            assert page["total"] == len(page["items"])
            assert page["counts"]["lost"] == 2
            facets = {one["field"]: dict(one["counts"]) for one in page["facets"]}
            return [one["sample"] for one in page["items"]], facets

        lost = {"mistake": {"digit dropped": 1, "truncated": 1}, "lang": {"de": 2}}
        assert found("&change=lost") == (["s0", "s1"], lost)
        # The baseline's answer is the wrong one of a won sample.
        assert found("&change=won") == (["s2"], {"mistake": {"truncated": 1}, "lang": {"en": 1}})
        assert found("&change=both_wrong")[1] == {"mistake": {"digit dropped": 1}}
        assert found("&mistake=truncated")[0] == ["s1", "s2"]
        assert found("&change=lost&mistake=truncated&where=lang:de")[0] == ["s1"]
        assert found("&where=lang:en")[0] == ["s2"]
        assert found("&where=lang:en&where=lang:de")[0] == []
        assert found("&change=both_wrong&where=lang:")[0] == ["s3"]
        second = ask(api, f"compare/flips?baseline={A}&candidate={B}&limit=1&after=1")
        assert second["facets"] == []
        unknown = api.ask("GET", f"compare/flips?baseline={A}&candidate={B}&where=nothing:x")
        assert (unknown.status, unknown.body["error"]) == (400, "no metadata column 'nothing'")
        rows = ask(
            api,
            f"compare/export?runs={A}&runs={B}&what=flips&mistake=truncated&change=lost&format=json",
        )
        assert [row["sample"] for row in rows] == ["s1"]


def test_where_less_is_better_less_has_won(tmp_path: Path) -> None:
    with unguarded(
        portal_over(home(tmp_path, a={"cer": [0.0, 0.5, 2.0]}, b={"cer": [0.0, 0.1, 3.0]}))
    ) as api:
        assert [row["places"][0] for row in flips(api, "won")] == [1]
        assert [row["places"][0] for row in flips(api, "lost")] == [2]
        assert [row["places"][0] for row in flips(api, "both_right")] == [0]


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, True], ids=["few scores", "many scores"])
def test_the_comparison_is_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    if apart:  # a process of its own compares
        monkeypatch.setattr(comparison, "SMALL", -1)
    folder = home(
        tmp_path,
        a={"anls": OLD, "cer": NEW},
        b={"anls": NEW, "cer": OLD},
        c={"anls": OLD, "cer": OLD},
    )
    runs = [Experiment(folder / "experiments" / name) for name in (A, B, C)]
    reported = account(runs[0], runs[1:])
    with unguarded(portal_over(folder)) as api:
        found = ask(api, f"compare?runs={A}&runs={B}&runs={C}")
        assert found["baseline"]["experiment"] == A
        for one, other in zip(found["candidates"], reported["candidates"], strict=True):
            assert one["side"]["experiment"] == other["id"]
            assert one["careful"] == other["careful"]
            assert one["differences"] == json.loads(json.dumps(other["differences"]))
            for row, compared in zip(one["metrics"], other["compared"], strict=True):
                what = compared["comparison"]
                assert row["signature"] == compared["signature"]
                assert row["values"] == [what["baseline"], what["candidate"]]
                assert row["p"] == what["p_adjusted"]
                assert (row["low"], row["high"]) == (
                    what["interval"]["low"],
                    what["interval"]["high"],
                )
                assert (row["won"], row["lost"], row["tied"]) == (
                    what["wins"],
                    what["losses"],
                    what["ties"],
                )
                ties = ("both_right", "both_partly", "both_wrong")
                assert sum(row[one] for one in ties) == what["ties"]
                assert (row["verdict"], row["documents"]) == (what["verdict"], what["clusters"])


def test_both_right_is_what_evaluation_counts_as_right_in_both(tmp_path: Path) -> None:
    lines = [record(number) for number in range(8)]
    answers = {
        "a": ["0", "1", "no", "3", None, "5", "no", "7"],
        "b": ["0", "no", "no", "3", "4", None, "6", "7"],
    }
    for letter, said in answers.items():
        here = evaluated(tmp_path / letter, said, lines, on_failed="zero")
        (tmp_path / "experiments").mkdir(exist_ok=True)
        here.path.rename(tmp_path / "experiments" / f"20261120-1432-plan-{letter * 4}")
    one, other = (Experiment(tmp_path / "experiments" / name) for name in (A, B))
    (candidate,) = account(one, [other])["candidates"]
    moves = {(source, target): count for source, target, count in candidate["moves"][0]["moves"]}
    with unguarded(portal_over(tmp_path)) as api:
        (row,) = ask(api, f"compare?runs={A}&runs={B}")["candidates"][0]["metrics"]
        assert row["both_right"] == moves["right", "right"]
        assert [one["sample"] for one in flips(api, "both_right")] == ["s0", "s3", "s7"]
        assert {one["sample"]: one["change"] for one in flips(api)} == {
            flip["sample"]: flip["change"] for flip in candidate["flips"]
        }


def test_samples_that_do_not_count_in_one_of_them_are_nowhere(tmp_path: Path) -> None:
    with unguarded(
        portal_over(home(tmp_path, a={"anls": [1.0, 0.5]}, b={"anls": [1.0, 0.5]}))
    ) as api:
        page = ask(api, f"compare/flips?baseline={A}&candidate={B}")
        assert (page["total"], sum(page["counts"].values())) == (0, 2)


def test_what_cannot_be_compared_says_why_and_leaves_the_others(tmp_path: Path) -> None:
    folder = home(tmp_path, a={"anls": OLD}, b={"anls": NEW}, c={"anls": NEW})
    (folder / "experiments" / C / "scores" / "rt.parquet").unlink()
    with unguarded(portal_over(folder)) as api:
        found = ask(api, f"compare?runs={A}&runs={C}&runs={B}")
        bad, good = found["candidates"]
        assert bad["metrics"] == []
        assert f"{C} has no scores of rt" in bad["refused"][0]["why"]
        assert [row["metric"] for row in good["metrics"]] == ["anls"]
        none = api.ask("GET", f"compare/flips?baseline={A}&candidate={C}")
        assert (none.status, none.body["code"]) == (409, "conflict")


def test_other_samples_are_compared_where_both_have_asked_them_if_that_is_wanted(
    tmp_path: Path,
) -> None:
    folder = home(tmp_path, a={"anls": OLD}, b={"anls": NEW[:6]})
    with unguarded(portal_over(folder)) as api:
        (refused,) = ask(api, f"compare?runs={A}&runs={B}")["candidates"][0]["refused"]
        assert "only the baseline asked 2 samples" in refused["why"]
        assert api.ask("GET", f"compare/flips?baseline={A}&candidate={B}").status == 409
        (row,) = ask(api, f"compare?runs={A}&runs={B}&common=1")["candidates"][0]["metrics"]
        assert row["n"] == 6
        assert len(flips(api, more="&common=1")) == 3


def two_models(folder: Path) -> Path:
    """One experiment in which two models were asked the same."""
    home(folder, a={"anls": OLD})
    here = Experiment(folder / "experiments" / A)
    first = run_task("rt", dataset={"source": "/nowhere"}, metrics=("anls",))
    second = run_task(
        "other", dataset={"source": "/nowhere"}, metrics=("anls",), model={"name": "m2"}
    )
    plan = resolved(first, second, shard_size=4)
    here.resolved_file.write_text(plan.model_dump_json())
    manifest = json.loads(here.manifest_file.read_text())
    (cut,) = manifest["work"]["cuts"]
    manifest["work"]["cuts"] = [cut, {**cut, "run_task": "other"}]
    manifest["measured"]["dataset_hashes"]["other"] = manifest["measured"]["dataset_hashes"]["rt"]
    here.manifest_file.write_text(json.dumps(manifest))
    home(folder / "more", a={"anls": NEW})
    made = folder / "more" / "experiments" / A / "scores" / "rt.parquet"
    made.rename(here.scores_file("other"))
    return folder


def test_models_within_one_experiment_are_compared(tmp_path: Path) -> None:
    with unguarded(portal_over(two_models(tmp_path))) as api:
        found = ask(api, f"compare?runs={A}:rt&runs={A}:other")
        assert found["baseline"]["run"] == f"{A}:rt"
        (candidate,) = found["candidates"]
        assert candidate["side"]["models"] == ["m2"]
        assert [(row["baseline"], row["candidate"]) for row in candidate["metrics"]] == [
            ("rt", "other")
        ]
        page = ask(api, f"compare/flips?baseline={A}:rt&candidate={A}:other&change=lost")
        assert [row["places"] for row in page["items"]] == [[1, 1], [6, 6]]
        by_hand = ask(
            api, f"compare/flips?baseline={A}:rt&candidate={A}:other&run_task=rt&other=other"
        )
        assert by_hand["total"] == 4


def test_a_run_task_that_neither_run_has_is_reported(tmp_path: Path) -> None:
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        found = ask(api, f"compare?runs={A}&runs={B}&run_task=nowhere")
        (candidate,) = found["candidates"]
        assert "unknown run task 'nowhere' (there are: rt)" in str(candidate["refused"])
        flips = api.ask("GET", f"compare/flips?baseline={A}&candidate={B}&run_task=nowhere")
        assert (flips.status, flips.body["code"]) == (409, "conflict")


def test_runs_that_are_none_are_refused(tmp_path: Path) -> None:
    refused = {
        f"runs={A}": 400,
        f"runs={A}&runs={A}": 400,
        "&".join(f"runs={A}" for _ in range(9)): 422,
        f"runs={A}&runs=nothing": 404,
        f"runs={A}&runs={B}:nothing": 404,
        f"runs={A}&runs=..%2f..%2fetc": 404,
        f"runs={A}&runs={B}:..%2f..%2fx": 404,
    }
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        assert {query: api.ask("GET", f"compare?{query}").status for query in refused} == refused


def test_figures_come_with_their_tables(tmp_path: Path) -> None:
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        (name,) = ask(api, f"compare/figures?runs={A}&runs={B}")
        figure = ask(api, f"compare/figures/{name['name']}?runs={A}&runs={B}&theme=dark")
        assert figure["plotly"]["data"][0]["type"] == "sankey"
        assert sum(row[2] for row in figure["rows"]) == len(OLD)
        assert figure["name"] == name["name"]
        assert api.ask("GET", f"compare/figures/nothing?runs={A}&runs={B}").status == 404


def test_scores_that_change_are_compared_again(tmp_path: Path) -> None:
    folder = home(tmp_path, a={"anls": OLD}, b={"anls": NEW})
    with unguarded(portal_over(folder)) as api:
        assert len(flips(api)) == 4
        made = Experiment(folder / "experiments" / B).scores_file("rt")
        home(tmp_path / "again", b={"anls": OLD})
        Experiment(tmp_path / "again" / "experiments" / B).scores_file("rt").rename(made)
        assert flips(api) == []
        (row,) = ask(api, f"compare?runs={A}&runs={B}")["candidates"][0]["metrics"]
        assert row["tied"] == len(OLD)


# --- what takes long ---------------------------------------------------------------------------------------


def test_of_several_readers_of_the_same_one_makes_it_and_too_many_are_sent_away() -> None:
    made, go, started = [], threading.Event(), threading.Event()

    def make() -> str:
        started.set()
        go.wait(60)
        made.append(1)
        return "value"

    kept: LruCache[str] = LruCache(10)
    room = SlowWork(most=2)
    futures = []
    for _ in range(3):
        with pytest.raises(NotYet) as wait:
            room.of(kept, "one", 1, make)
        futures.append(wait.value.future)
    assert len({id(future) for future in futures}) == 1
    with pytest.raises(NotYet):
        room.of(kept, "two", 1, make)
    with pytest.raises(PortalFault) as full:
        room.of(kept, "three", 1, make)
    assert (full.value.status, full.value.code) == (503, "busy")
    go.set()
    futures[0].result(60)
    assert room.of(kept, "one", 1, make) == "value"
    assert started.is_set()


@pytest.mark.parametrize("later", [503, 202])
def test_what_takes_longer_is_answered_as_its_route_says_with_how_far_it_is(later: int) -> None:
    go, room, kept = threading.Event(), SlowWork(), LruCache[str](1)

    def work() -> str:
        return room.of(kept, "key", 1, lambda: str(go.wait(60)), Progress(0.25))

    with pytest.raises(PortalFault) as busy:
        asyncio.run(patiently(work, 0.01, later))
    go.set()
    assert (busy.value.status, busy.value.code, busy.value.progress) == (later, "busy", 0.25)


def test_a_process_that_fails_is_a_fault_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "SMALL", -1)
    monkeypatch.setattr(comparison, "_START", "raise SystemExit('no memory is left')")
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        found = api.ask("GET", f"compare?runs={A}&runs={B}")
        assert (found.status, found.body["code"]) == (500, "failed")
        assert "ended with 1: no memory is left" in found.body["error"]
        assert "hpcbench compare" in found.body["remedy"]


def test_other_requests_are_answered_while_something_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    real = comparison._made

    def held_up(asked: Any, progress: Any) -> Any:
        go.wait(60)
        return real(asked, progress)

    monkeypatch.setattr(comparison, "_made", held_up)
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        waiting = [
            threading.Thread(target=api.ask, args=("GET", f"compare?runs={A}&runs={B}"))
            for _ in range(12)
        ]
        for thread in waiting:
            thread.start()
        # More than there are threads for requests; this one is answered all the same.
        assert api.ask("GET", f"experiments/{A}/run-tasks/rt/samples").status == 200
        go.set()
        for thread in waiting:
            thread.join()
        assert api.ask("GET", f"compare?runs={A}&runs={B}").status == 200


def test_a_reader_that_waits_too_long_is_asked_to_come_back_and_finds_it_made_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, real = threading.Event(), comparison._made

    def held_up(asked: Any, progress: Any) -> Any:
        go.wait(60)
        return real(asked, progress)

    monkeypatch.setattr(comparison, "_made", held_up)
    with unguarded(portal_over(home(tmp_path, a={"anls": OLD}, b={"anls": NEW}))) as api:
        busy = api.ask("GET", f"compare?runs={A}&runs={B}&wait=0.05")
        assert (busy.status, busy.body["code"], busy.headers["retry-after"]) == (202, "busy", "2")
        assert busy.body["progress"] == 0
        go.set()
        assert api.ask("GET", f"compare?runs={A}&runs={B}").status == 200
