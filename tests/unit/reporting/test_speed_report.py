"""Speed in the report: points of a sweep, its knee, doubts, memory; a dash for what is unknown."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.performance_json import performance_of
from hpcbench.files.atomic import Appender, create_exclusive, write_json
from hpcbench.planning import plan_work
from hpcbench.reporting.printed_tables import speed_rows
from hpcbench.reporting.writing import report
from tests.unit.reporting.test_report import Checker
from tests.unit.small import measured, record, resolved, run_task, write_dataset
from tests.unit.timing import closed_loop, failed, open_loop

SAMPLES = 120
LOAD = {"concurrency": [1, 2, 4, 8], "rate": [5.0]}
SLO = {"ttft_ms": 400, "tpot_ms": 60}


def swept(folder: Path) -> Experiment:
    """A sweep over an engine that serves four at once as fast as one, and a run task beside it.

    At eight the client ran late; at a rate of 5 the engine, which gives 20 a second, has no trouble.
    """
    data = {"source": str(write_dataset(folder / "data", [record(n) for n in range(SAMPLES)]))}
    points = [
        *((f"vqa-c{count}", {"concurrency": count}) for count in LOAD["concurrency"]),
        *((f"vqa-r{rate}", {"rate": rate, "concurrency": 64}) for rate in LOAD["rate"]),
    ]
    tasks = [
        run_task(name, dataset=data, load=LOAD, slo=SLO, **task).model_copy(update={"sweep": "vqa"})
        for name, task in points
    ]
    plan = resolved(*tasks, run_task("alone", dataset=data), shard_size=SAMPLES)
    work = plan_work(plan, measured(plan, SAMPLES))
    here = Experiment(folder / "experiments" / "20261120-1432-speed-aaaa")
    here.path.mkdir(parents=True)
    here.resolved_file.write_text(plan.model_dump_json())
    names = [one.run_task for one in work.shards]
    write_json(here.chosen_file, dict.fromkeys(names, [(0, SAMPLES)]))
    write_json(here.manifest_file, {
        "work": asdict(work), "hpcbench": "0.1.0", "python": "3.11.2",
        "created": "2026-11-20T14:32:00+0000", "host": "login1", "plan_key": "f" * 64, "seed": 0,
        "git": {"plan": None, "hpcbench": None}, "packages": {}, "environments": {},
        "measured": {"model_hashes": {}, "dataset_hashes": {}},
    })  # fmt: skip
    for name, task in [*points, ("alone", {"concurrency": 1})]:
        if "rate" in task:
            gap = 1000 / task["rate"]
            piece = open_loop([gap * n for n in range(SAMPLES)], [200.0] * SAMPLES, room=64)
        else:
            slow = max(1.0, task["concurrency"] / 4)
            piece = closed_loop(
                SAMPLES,
                task["concurrency"],
                lambda chance, n, slow=slow: slow * chance.uniform(150, 250),
            )
        if name == "alone":
            piece[-1] = failed(SAMPLES - 1, piece[-1].times.send / 1e6, piece[-1].times.done / 1e6)
        events = here.shard_events(name, 0, 1)
        create_exclusive(events, {"event": "claimed", "time": 0, "owner": {"job": "1_0"}})
        with Appender(here.shard_responses(name, 0, 1)) as file:
            for one in piece:
                file.write(one.to_json())
    with Appender(here.worker_events("g0", "1-0")) as news:
        for name in names:
            health = {
                "lag_p50_ms": 0.1,
                "lag_p99_ms": 0.5 + 30 * (name == "vqa-c8"),
                "lag_max_ms": 40,
            }
            bound = {"client_bound": name == "vqa-c8"}
            news.write({"event": "client_health", "run_task": name, **health, **bound})
        peaks = {"gpu_peak": 40 * 2**30, "effective": 9 * 2**30, "host_peak": None}
        news.write({"event": "monitor", "run_task": "alone", "memory": peaks})
    evaluate(here)
    return here


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    here = swept(tmp_path_factory.mktemp("sweep"))
    report(here)
    assert not (here.report_dir / "failed.txt").exists()
    return here


@pytest.mark.long
def test_every_point_is_in_the_table_of_its_sweep_and_the_knee_is_marked(
    reported: Experiment,
) -> None:
    text = (reported.report_dir / "report.md").read_text()
    table = text[text.index("### Sweep vqa") : text.index("### Memory")]
    rows = [
        line for line in table.splitlines() if line.startswith("| ") and " in flight" in line[:20]
    ]
    assert [row.split("|")[1].strip() for row in rows] == [
        "1 in flight", "2 in flight", "4 in flight (knee, best)", "8 in flight (client-bound)",
    ]  # fmt: skip
    assert "| 5/s poisson | 120 / 120 |" in table
    assert "Good: TTFT ≤ 400 ms, TPOT ≤ 60 ms" in table
    speed_table = text[text.index("## Speed") : text.index("### Sweep vqa")]
    assert "| alone | 1 in flight | 119 / 120 |" in speed_table
    assert "| vqa-c1" not in speed_table


def test_the_html_shows_the_same_figures_and_stays_whole(reported: Experiment) -> None:
    text = (reported.report_dir / "report.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.fetched == []
    assert "Latency over throughput of vqa" in text or "sweep-vqa" in text
    for row in speed_rows(performance_of(reported), ["vqa-c1", "vqa-r5.0", "alone"]):
        assert f'<td class="n">{row.answers}</td>' in text
    assert "vqa-c8</strong>: client-bound: the client ran up to 30.5 ms late" in text


def test_a_sweep_is_plotted_as_text_beside_its_table(reported: Experiment) -> None:
    assert "](sweep-vqa.svg)" in (reported.report_dir / "report.md").read_text()
    plot = (reported.report_dir / "sweep-vqa.svg").read_text()
    assert "answers per second" in plot
    assert ">5/s<" in plot


def test_memory_that_was_not_measured_is_a_dash(reported: Experiment) -> None:
    text = (reported.report_dir / "report.md").read_text()
    assert "| alone | 40.00 | – | – | 9.00 | – |" in text


def test_a_percentile_of_too_few_requests_is_a_dash(reported: Experiment) -> None:
    """120 requests tell the 95th percentile and not the 99th."""
    text = (reported.report_dir / "report.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| alone | TTFT |")]
    cells = [cell.strip() for cell in row.split("|")[3:-1]]
    assert cells[0] == "119"
    assert "[" in cells[4]
    assert cells[5] == "–"


def test_reporting_twice_gives_the_same_bytes(reported: Experiment) -> None:
    first = {path.name: path.read_bytes() for path in reported.report_dir.iterdir()}
    report(reported)
    assert first == {path.name: path.read_bytes() for path in reported.report_dir.iterdir()}


@pytest.mark.long
def test_the_report_says_what_tokens_and_a_gateways_limits_took(tmp_path: Path) -> None:
    here = swept(tmp_path)
    evaluate(here)
    whole = performance_of(here).to_json()
    whole["run_tasks"]["alone"]["tokens"] = {
        "granted": {"full_auth": 2, "cache": 5}, "failed": {"full_auth": 1},
        "seconds": {"full_auth": 1.25, "cache": 0.05}, "longest": 0.75, "fallbacks": 1, "rejected": 3,
        "waits": 4, "wait_seconds": 2.5, "oldest": 3299.6,
    }  # fmt: skip
    whole["run_tasks"]["alone"]["limits"] = {"refused": 12, "waits": 30, "wait_seconds": 61.5}
    write_json(here.performance_file, whole)
    report(here)
    text = (here.report_dir / "report.md").read_text()
    assert "5 cache, 2 full_auth" in text
    assert "1 full_auth" in text
    assert "oldest, s" in text
    assert "3,300" in text
    (row,) = [line for line in text.splitlines() if "| 12 | 30 | 62 |" in line.replace("  ", " ")]
    assert "alone" in row
