"""`status` and `watch` on low, narrow and wide terminals, piped, with one run task or many."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from hpcbench import slurm
from hpcbench.cli import output as showing
from hpcbench.cli.status_screen import EMPTY, SEGMENTS, StatusScreen, shards_bar
from hpcbench.experiment.control import control_request
from hpcbench.status import ExperimentStatus, ShardCounts
from tests.unit.scene import Scene

PRICES = {"input": 1, "output": 2}


@pytest.fixture(autouse=True)
def no_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "job_ends", lambda *_, **__: {})


def shown(status: ExperimentStatus, width: int, height: int, *, live: bool = True) -> list[str]:
    """The lines of a terminal of this size."""
    out = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    out.print(StatusScreen(status, live=live))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().rstrip("\n").split("\n")


def busy(tmp_path: Path, tasks: int = 3, workers: int = 5) -> ExperimentStatus:
    """An experiment in the middle of its work, with troubles."""
    scene = Scene(tmp_path, {f"run-task-{number:04d}": 40 for number in range(tasks)})
    scene.submitted()
    for number in range(workers):
        job = f"4711_{number}"
        scene.job(job)
        scene.worker(
            job, ("model_ready", {"model": "model-run-task-0000"}), node=f"node{number:03d}"
        )
        scene.monitor(job, gpus=[{"gpu": 0, "utilisation": 97, "used": 61 * 2**30}])
    scene.claimed("run-task-0000", 0, answered=10, end="done")
    scene.claimed("run-task-0000", 1, answered=4, ago=60)
    for number in range(900, 910):
        what = {"model": "model-run-task-0001", "message": f"CUDA out of memory, pid {number}"}
        scene.worker(f"4711_{number}", ("model_failed", what), ("finished", {}), node="bad")
    for number, message in enumerate(("the engine hung up", "no such image")):
        scene.worker(
            f"4711_{800 + number}", ("shard_failed", {"message": message}), ("finished", {})
        )
    scene.worker(
        "4711_700", ("alarm", {"kind": "throttled", "message": "GPU 0 is hot"}), ("finished", {})
    )
    scene.job("4711", "PENDING", reason="Reservation", task_ids="20-29")
    return scene.look()


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50), (60, 20), (200, 30)])
@pytest.mark.parametrize(("tasks", "workers"), [(1, 0), (3, 5), (300, 40)])
def test_watch_fits_its_terminal_whatever_there_is_to_show(
    tmp_path: Path, width: int, height: int, tasks: int, workers: int
) -> None:
    lines = shown(busy(tmp_path, tasks, workers), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width


@pytest.mark.long
def test_on_a_narrow_terminal_the_essentials_stay(tmp_path: Path) -> None:
    text = "\n".join(shown(busy(tmp_path, 300, 40), 80, 24))
    for essential in (
        "running", "14/12,000 samples done", "last answer", "waits for the start", "and 29",
        "more workers", "×10 CUDA out of memory", "node000", "97 %",
    ):  # fmt: skip
        assert essential in text, essential


def test_the_failing_and_the_busiest_run_tasks_are_shown_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    lines = shown(busy(tmp_path, 300, 0), 140, 30)
    assert any(line.startswith("run-task-0000") for line in lines)
    (rest,) = [line for line in lines if line.startswith("and ")]
    assert rest.endswith("pending")


def test_status_shows_every_cause_with_its_log(tmp_path: Path) -> None:
    text = "\n".join(shown(busy(tmp_path), 140, 20, live=False))
    for part in ("×10", "the engine hung up", "no such image", "GPU 0 is hot", "workers/g0.4711_"):
        assert part in text, part


@pytest.mark.long
def test_piped_nothing_is_cut_and_nothing_left_out(tmp_path: Path) -> None:
    out = Console(file=io.StringIO(), width=160, force_terminal=False)
    out.print(StatusScreen(busy(tmp_path, 100, 60)), soft_wrap=True)
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert all(f"run-task-{number:04d}" in text for number in range(100))
    assert all(f"node{number:03d}" in text for number in range(60))
    assert "…" not in text and "\x1b" not in text


def test_a_slurm_that_does_not_answer_is_said_with_the_age_of_its_word(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.submitted()
    scene.fault = "squeue: Socket timed out"
    text = "\n".join(shown(scene.look(), 140, 40))
    assert "Slurm does not answer (squeue: Socket timed out); its last answer is 5 s old" in text


@given(some.lists(some.integers(0, 10**6), min_size=8, max_size=8), some.integers(12, 40))
def test_a_bar_is_as_wide_as_it_is_and_full_only_at_the_end(counts: list[int], width: int) -> None:
    names = ("pending", "acknowledged", "claimed", "running", "silent", "done", "failed", "lost")
    shards = ShardCounts(**dict(zip(names, counts, strict=True)))
    bar = shards_bar(shards, width)
    assert len(bar) == width
    states = sum(getattr(shards, name) for name, _ in SEGMENTS)
    assert (EMPTY in bar.plain) <= (states < shards.total() or states == 0)
    done = sum(span.end - span.start for span in bar.spans if span.style == "green")
    assert (done == width) == (bool(shards.total()) and shards.done == shards.total())


def test_a_bar_of_failed_shards_is_not_that_of_a_run_that_is_done_without_colour_too() -> None:
    assert shards_bar(ShardCounts(failed=3), 6).plain == "×" * 6
    assert shards_bar(ShardCounts(done=2, failed=1), 6).plain == "━━━━××"


def test_watch_prints_a_line_a_change_when_piped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = iter(["pending", "running", "running", "done"])
    first = busy(tmp_path)

    class Played:
        def __init__(self, _: Any) -> None:
            pass

        def look(self) -> ExperimentStatus:
            return replace(first, state=next(states))

    monkeypatch.setattr("hpcbench.status.Observer", Played)
    monkeypatch.setattr(showing.time, "sleep", lambda _: None)
    scene = Scene(tmp_path / "other")
    assert showing.follow(scene.experiment).state == "done"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["pending", "running", "done"]


def test_the_report_is_named_once_below_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    scene.worker("4711_0", ("draining", {"signal": "SIGTERM"}), heard=1)
    ended = replace(scene.look(), state="done", report=str(tmp_path / "report.md"))
    assert ended.alarms
    monkeypatch.setattr(showing, "follow", lambda *_, **__: ended)
    assert showing.finish(scene.experiment) == 0
    assert capsys.readouterr().out.count("report: ") == 1


def test_ctrl_c_leaves_quietly_and_says_that_the_experiment_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(showing, "follow", interrupted)
    scene = Scene(tmp_path)
    assert showing.finish(scene.experiment) == 130
    assert "hpcbench watch" in capsys.readouterr().err


def test_turns_and_calls_of_agents_are_summed_over_shards_and_workers(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"agent": 40, "plain": 40})
    scene.submitted()
    scene.job("4711_0")
    scene.job("4711_1")
    scene.claimed("agent", 0, answered=10, end="done")
    done = {"shard": "agent/00000", "turns": 30, "calls": 20}
    now = {"shard": "agent/00001", "answered": 2, "turns": 6, "calls": 4, "working": 3}
    scene.worker(
        "4711_0", ("shard_done", done), ("progress", {**now, "turns": 3}), ("progress", now)
    )
    scene.worker("4711_1", ("progress", {"shard": "plain/00000", "answered": 2}))
    status = scene.look()
    agent, plain = status.run_tasks
    assert (agent.turns, agent.tool_calls, agent.working) == (36, 24, 3)
    assert plain.turns is None
    line = "agents: 36 turns and 24 tool calls so far, 3 samples in work"
    assert any(line in one for one in shown(status, 100, 40))
    ended = replace(status, run_tasks=(replace(agent, working=0),))
    assert not any("so far" in one for one in shown(ended, 100, 40))
    assert not any("agents:" in one for one in shown(busy(tmp_path / "other"), 100, 40))


def test_the_spending_of_all_workers_is_shown_beside_the_budget(tmp_path: Path) -> None:
    prices = {"input": 1, "output": 2, "currency": "EUR"}
    scene = Scene(tmp_path, model={"prices": prices}, max_requests=5000, max_cost=2.5)
    scene.submitted()
    scene.job("4711_0")
    early = {"spent": {"requests": 30, "tokens": 900, "cost": 0.25}}
    now = {"spent": {"requests": 1100, "tokens": 40_000, "cost": 0.5}}
    scene.worker("4711_0", ("budget", early), ("budget", now), ("budget", {"spent": 7}))
    scene.worker("4711_1", ("budget", early), ("finished", {}))
    scene.worker("4711_2", ("finished", {}))
    spending = scene.look().spending
    assert spending is not None
    assert (spending.requests, spending.tokens, spending.cost) == (1130, 40_900, 0.75)
    assert (spending.max_requests, spending.max_tokens, spending.max_cost) == (5000, None, 2.5)
    line = "spent 1,130 of 5,000 requests, 40,900 tokens, 0.75 of 2.5 EUR"
    assert line in shown(scene.look(), 100, 40)
    control_request(scene.experiment, "resume", budget={"max_tokens": 2_000_000})
    line = "spent 1,130 of 5,000 requests, 40,900 of 2,000,000 tokens, 0.75 of 2.5 EUR"
    assert line in shown(scene.look(), 100, 40)


def test_spending_is_shown_with_a_budget_or_prices_only(tmp_path: Path) -> None:
    spent = ("budget", {"spent": {"requests": 30, "tokens": 900, "cost": 0.25}})
    for name, lines, more in (
        ("neither", [], {}),
        ("budget", ["spent 30 requests, 900 of 1,000 tokens"], {"max_tokens": 1000}),
        ("prices", ["spent 30 requests, 900 tokens, 0.25 USD"], {"model": {"prices": PRICES}}),
    ):
        scene = Scene(tmp_path / name, **more)
        scene.submitted()
        scene.worker("4711_0", spent, ("finished", {}))
        assert [one for one in shown(scene.look(), 100, 40) if one.startswith("spent")] == lines
