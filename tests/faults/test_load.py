"""`hpcbench load` whole: engines of known schedule at several loads, and what is measured of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json
from hpcbench.schema.load import Slo
from hpcbench.schema.records import Response
from tests.faults.conftest import Bench, Trial
from tests.unit import plain_speed

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent

REQUESTS = 16
"""Requests of a point."""

POINTS = ("c1", "c4", "r5.0")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When an engine's texts come: a role after `gap`, the first text `first` later, and so on by `gap`."""

    first: float
    gap: float
    pieces: tuple[str, ...]

    @property
    def ttft(self) -> float:
        """Milliseconds."""
        return 1000 * (self.gap + self.first)

    @property
    def e2e(self) -> float:
        """Milliseconds."""
        return self.ttft + 1000 * self.gap * (len(self.pieces) - 1)

    @property
    def took(self) -> float:
        """Milliseconds until the stream ends: reason, count of tokens and `[DONE]` follow the last text."""
        return self.e2e + 3 * 1000 * self.gap


ENGINES = {
    "quick": Schedule(0.04, 0.02, ("12,", "50 ", "€ in", " all")),
    "slow": Schedule(0.16, 0.01, ("12,", "50 € in all")),
}
"""Model, and run task → how it answers."""

PROTOCOLS = {"quick": "http", "slow": "grpc"}
"""Run task → how its requests are sent: times mean the same over both."""

TTFT_LIMIT, TPOT_LIMIT = 150, 100
"""Milliseconds: the schedule of `slow` breaks the first; that of `quick` keeps both on a quiet machine."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, str]:
    """Both at several loads, run once, and what `hpcbench load --wait` printed; its exit code was 0."""
    bench = Bench(tmp_path_factory.mktemp("load"), tmp_path_factory.mktemp("cache"))
    for name, schedule in ENGINES.items():
        options = {"first": schedule.first, "gap": schedule.gap, "pieces": list(schedule.pieces)}
        engine = "tests.scripted_engine:ScriptedEngine"
        bench.model(name, engine=engine, engine_options=options, package=None)
    write_pages(bench)
    tasks = [
        {"name": name, "model": name, "dataset": "pages", "protocol": PROTOCOLS[name]}
        for name in ENGINES
    ]
    plan = bench.plan(*tasks, stages=["inference", "evaluation", "reporting"])
    printed, _ = bench.run(
        "load", plan, "--registry", bench.folder / "registry", "--concurrency", "1,4", "--rate", "5",
        "--arrival", "constant", "--requests", REQUESTS,
        "--slo", f"ttft={TTFT_LIMIT},tpot={TPOT_LIMIT}", "--wait", PYTHONPATH=str(ROOT),
    )  # fmt: skip
    (path,) = (bench.home / "experiments").iterdir()
    return Trial(bench, path), printed


def write_pages(bench: Bench) -> None:
    """A dataset of which the engines' one answer is right for every second sample."""
    folder = bench.folder / "pages"
    folder.mkdir()
    Image.new("L", (8, 8), 1).save(folder / "page.png")
    with (folder / "pages.jsonl").open("w") as file:
        for number in range(REQUESTS + 8):
            record = {
                "id": f"s{number:03d}", "images": ["page.png"], "fields": {"question": "how much"},
                "references": ["12,50 € in all" if number % 2 else "nothing"],
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
    definition = {"name": "pages", "source": "../../pages", "annotations": "pages.jsonl"}
    bench.write("registry/datasets/pages.yaml", {**definition, "fields": ["question"]})


def measured(swept: tuple[Trial, str]) -> Any:
    """`performance.json`."""
    return read_json(swept[0].path / "performance.json")


def pieces(swept: tuple[Trial, str], run_task: str) -> list[list[Response]]:
    """The responses that the client stored, with its stamps."""
    return list(pieces_of(Experiment(swept[0].path), run_task))


EVERY = [f"{name}-{point}" for name in ENGINES for point in POINTS]


@pytest.mark.parametrize("run_task", EVERY)
def test_no_stamp_is_earlier_than_the_schedule(swept: tuple[Trial, str], run_task: str) -> None:
    """A busy machine makes an answer later, never earlier; benchmarks/timing_truth.py shows how late."""
    schedule = ENGINES[run_task.partition("-")[0]]
    stored = [one for piece in pieces(swept, run_task) for one in piece]
    assert len(stored) == REQUESTS
    for one in stored:
        first, last = (1e-6 * (one.times.chunks[place] - one.times.send) for place in (0, -1))
        assert (one.outcome, one.tries) == ("ok", 1)
        assert schedule.ttft <= first
        assert schedule.e2e <= last
        assert schedule.took <= 1e-6 * (one.times.done - one.times.send)
        assert one.usage is not None
        assert one.usage["completion_tokens"] == len(schedule.pieces)


@pytest.mark.parametrize("run_task", EVERY)
def test_every_figure_is_that_of_the_stored_stamps(swept: tuple[Trial, str], run_task: str) -> None:
    figures = measured(swept)["run_tasks"][run_task]
    slo = Slo(ttft_ms=TTFT_LIMIT, tpot_ms=TPOT_LIMIT)
    for name, expected in plain_speed.measure(pieces(swept, run_task), slo).items():
        assert figures[name] == expected, name


@pytest.mark.parametrize("name", ENGINES)
def test_each_point_asks_under_its_load(swept: tuple[Trial, str], name: str) -> None:
    tables, schedule = measured(swept)["run_tasks"], ENGINES[name]
    for at_once in (1, 4):
        figures = tables[f"{name}-c{at_once}"]
        assert figures["whole"]["answers_per_s"] <= at_once * 1000 / schedule.took
        assert figures["window"]["in_flight"] <= at_once
        assert figures["load"]["concurrency"] == at_once
        assert figures["load"]["route"] == ("direct" if PROTOCOLS[name] == "http" else "proxied")
    load = tables[f"{name}-r5.0"]["load"]
    assert (load["rate"], load["arrival"], load["sweep"]) == (5, "constant", name)
    assert load["protocol"] == PROTOCOLS[name]
    (piece,) = pieces(swept, f"{name}-r5.0")
    due = sorted(one.times.scheduled or 0 for one in piece)
    assert {after - before for before, after in pairwise(due)} == {200_000_000}
    assert all(one.times.send >= (one.times.scheduled or 0) for one in piece)


def test_an_engine_whose_schedule_breaks_a_limit_has_no_good_answer(
    swept: tuple[Trial, str],
) -> None:
    tables = measured(swept)["run_tasks"]
    for point in POINTS:
        slow = tables[f"slow-{point}"]
        assert (slow["attainment"]["good"], slow["whole"]["good_per_s"]) == (0, 0)
    assert measured(swept)["sweeps"]["slow"]["best"] is None


@pytest.mark.parametrize("name", ENGINES)
def test_a_sweep_names_its_points_and_a_knee_among_those_with_so_many_in_flight(
    swept: tuple[Trial, str], name: str
) -> None:
    sweep, tables = measured(swept)["sweeps"][name], measured(swept)["run_tasks"]
    assert sweep["points"] == [f"{name}-{point}" for point in POINTS]
    assert sweep["rate_knee"] is None, "of one point"
    # A point counts unless the machine was too busy for the client or for a steady time, as its table says.
    closed = [
        point
        for at_once in (1, 4)
        if tables[point := f"{name}-c{at_once}"]["valid"] and tables[point]["answers_per_s"]
    ]
    assert sweep["knee"] in (closed if len(closed) > 1 else [None])


def test_scores_under_load_stand_in_the_same_experiment(swept: tuple[Trial, str]) -> None:
    tables = json.loads(swept[0].metrics)["run_tasks"]
    assert list(tables) == EVERY
    for table in tables.values():
        assert (table["outcomes"], table["coverage"]) == ({"ok": REQUESTS}, 1)
        assert table["metrics"]["exact_match"]["value"] == 0.5


def test_screen_and_report_show_every_point_of_a_sweep(swept: tuple[Trial, str]) -> None:
    trial, printed = swept
    text, html = ((trial.path / "report" / f"report.{end}").read_text() for end in ("md", "html"))
    loads = dict(zip(POINTS, ("1 in flight", "4 in flight", "5/s constant"), strict=True))
    for name in ENGINES:
        part = text.split(f"### Sweep {name}\n")[1].split("\n#")[0]
        sweep = measured(swept)["sweeps"][name]
        for point, load in loads.items():
            marks = [mark for mark in ("knee", "best") if sweep[mark] == f"{name}-{point}"]
            if not measured(swept)["run_tasks"][f"{name}-{point}"]["valid"]:
                marks.append("client-bound")  # the machine was too busy for the client
            mark = f" ({', '.join(marks)})" if marks else ""
            assert f"| {load}{mark} | {REQUESTS} / {REQUESTS} |" in part
            assert f"{load}{mark}</th>" in html
            assert load in printed
        assert f"TTFT ≤ {TTFT_LIMIT} ms, TPOT ≤ {TPOT_LIMIT} ms" in part
    assert f"report: {trial.path / 'report'}" in printed
