"""`hpcbench load` whole: engines of known schedule at several loads, and what is measured of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hpcbench.experiment.files import read_json
from tests.faults.conftest import Bench, Trial

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent

REQUESTS = 16
"""Requests of a point. Each then ends within four seconds, below which no client is called too slow."""

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
    def tpot(self) -> float:
        """Milliseconds."""
        return 1000 * self.gap

    @property
    def e2e(self) -> float:
        """Milliseconds."""
        return self.ttft + self.tpot * (len(self.pieces) - 1)

    @property
    def took(self) -> float:
        """Milliseconds until the stream ends: reason, count of tokens and `[DONE]` follow the last text."""
        return self.e2e + 3 * self.tpot


ENGINES = {
    "quick": Schedule(0.04, 0.02, ("12,", "50 ", "€ in", " all")),
    "slow": Schedule(0.16, 0.01, ("12,", "50 € in all")),
}
"""Model, and run task → how it answers."""

TTFT_LIMIT, TPOT_LIMIT = 150, 100
"""Milliseconds: the one keeps both, however busy the machine; the other cannot keep the first."""

LATE = 40
"""Milliseconds by which a busy machine may delay a mean. Nothing is earlier than its schedule."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, str]:
    """Both at several loads, run once, and what `hpcbench load --wait` printed; its exit code was 0."""
    bench = Bench(tmp_path_factory.mktemp("load"), tmp_path_factory.mktemp("cache"))
    for name, schedule in ENGINES.items():
        options = {"first": schedule.first, "gap": schedule.gap, "pieces": list(schedule.pieces)}
        engine = "tests.mock_openai:ScriptedEngine"
        bench.model(name, engine=engine, engine_options=options, package=None)
    write_pages(bench)
    tasks = [{"name": name, "model": name, "dataset": "pages"} for name in ENGINES]
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
    document = {"name": "pages", "source": "../../pages", "annotations": "pages.jsonl"}
    bench.write("registry/datasets/pages.yaml", {**document, "fields": ["question"]})


def measured(swept: tuple[Trial, str]) -> Any:
    """`performance.json`."""
    return read_json(swept[0].path / "performance.json")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ENGINES)
def test_times_are_those_of_the_schedule(swept: tuple[Trial, str], name: str, point: str) -> None:
    figures, schedule = measured(swept)["run_tasks"][f"{name}-{point}"], ENGINES[name]
    assert (figures["requests"], figures["answered"], figures["tries"]) == (REQUESTS,) * 3
    assert figures["valid"], figures["notes"]
    for figure, due in (("ttft_ms", schedule.ttft), ("e2e_ms", schedule.e2e)):
        assert due <= figures[figure]["min"]
        assert due <= figures[figure]["mean"]["value"] < due + LATE
        assert due <= figures[figure]["p50"]["value"] < due + LATE
        assert figures[figure]["p95"] == {"value": None, "low": None, "high": None, "needs": 90}
    # A first text that is late makes the rest look early.
    assert figures["tpot_ms"]["mean"]["value"] == pytest.approx(schedule.tpot, rel=0.5)
    assert figures["completion_tokens"] == REQUESTS * len(schedule.pieces)


@pytest.mark.parametrize("name", ENGINES)
def test_steady_rates_are_those_that_the_load_allows(swept: tuple[Trial, str], name: str) -> None:
    tables, schedule = measured(swept)["run_tasks"], ENGINES[name]
    for at_once in (1, 4):
        figures = tables[f"{name}-c{at_once}"]
        # All in flight end together, so where the window ends decides over a round of them.
        edge = REQUESTS / (REQUESTS - at_once)
        most, least = (
            edge * at_once * 1000 / schedule.took,
            at_once * 1000 / (schedule.took + LATE) / edge,
        )
        assert least < figures["answers_per_s"]["value"] < most
        tokens = figures["tokens_per_s"]["value"] / len(schedule.pieces)
        assert least < tokens < most
        assert figures["window"]["in_flight"] == pytest.approx(at_once, rel=0.15)
    assert tables[f"{name}-r5.0"]["answers_per_s"]["value"] == pytest.approx(5, rel=0.15)
    load = tables[f"{name}-r5.0"]["load"]
    assert (load["rate"], load["arrival"], load["sweep"]) == (5, "constant", name)


def test_limits_are_kept_by_whom_the_schedule_lets_keep_them(swept: tuple[Trial, str]) -> None:
    tables = measured(swept)["run_tasks"]
    limits = {"ttft_ms": TTFT_LIMIT, "tpot_ms": TPOT_LIMIT, "e2e_ms": None}
    for point in POINTS:
        quick, slow = tables[f"quick-{point}"], tables[f"slow-{point}"]
        assert quick["attainment"]["slo"] == slow["attainment"]["slo"] == limits
        assert quick["attainment"]["good"] == REQUESTS
        assert quick["attainment"]["value"] == 1
        assert quick["good_per_s"] == quick["answers_per_s"]
        assert slow["attainment"]["value"] == slow["good_per_s"]["value"] == 0


def test_four_at_once_are_the_knee_and_the_best_unless_nothing_was_good(
    swept: tuple[Trial, str],
) -> None:
    found = measured(swept)["sweeps"]
    for name in ENGINES:
        assert found[name]["points"] == [f"{name}-{point}" for point in POINTS]
        assert found[name]["knee"] == f"{name}-c4"
        assert found[name]["rate_knee"] is None, "of one point"
    assert found["quick"]["best"] == "quick-c4"
    assert found["slow"]["best"] is None


def test_scores_under_load_stand_in_the_same_experiment(swept: tuple[Trial, str]) -> None:
    tables = json.loads(swept[0].metrics)["run_tasks"]
    assert list(tables) == [f"{name}-{point}" for name in ENGINES for point in POINTS]
    for table in tables.values():
        assert (table["outcomes"], table["coverage"]) == ({"ok": REQUESTS}, 1)
        assert table["metrics"]["exact_match"]["value"] == 0.5


def test_screen_and_report_show_every_point_of_a_sweep(swept: tuple[Trial, str]) -> None:
    trial, printed = swept
    text, html = ((trial.path / "report" / f"report.{end}").read_text() for end in ("md", "html"))
    marks = {"quick": ("", " (knee, best)", ""), "slow": ("", " (knee)", "")}
    for name in ENGINES:
        part = text.split(f"### Sweep {name}\n")[1].split("\n#")[0]
        loads = ("1 at once", "4 at once", "5/s constant")
        for load, mark in zip(loads, marks[name], strict=True):
            assert f"| {load}{mark} | {REQUESTS} / {REQUESTS} |" in part
            assert f"{load}{mark}</th>" in html
            assert load in printed
        assert f"TTFT ≤ {TTFT_LIMIT} ms, TPOT ≤ {TPOT_LIMIT} ms" in part
    assert f"report: {trial.path / 'report'}" in printed
