"""Experiments made by an earlier version open, are compared and reported; its jobs find their code."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.experiment.view.performance_json import performance_of
from hpcbench.files.atomic import write_json
from hpcbench.submit.array_task import ArrayTask
from tests.unit.earlier import CUT, SHORT, WHOLE, unpack

Run = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, Experiment]:
    return unpack(tmp_path)


@pytest.fixture
def reported(home: dict[str, Experiment], capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a verb that has to succeed; what it printed as JSON, else as text."""

    def run(*words: str, code: int = 0) -> Any:
        assert main(list(words)) == code, capsys.readouterr().err
        text = capsys.readouterr().out
        return json.loads(text) if "--json" in words else text

    return run


def test_they_are_listed_with_how_they_ended(reported: Run) -> None:
    found = {row["id"]: row for row in reported("list", "--json")}
    assert {found[WHOLE]["state"], found[SHORT]["state"]} == {"done"}
    assert found[WHOLE]["answered"] == 12
    assert found[CUT]["state"] not in ("done", "unreadable")
    assert found[CUT]["answered"] == 33


def test_one_that_was_killed_shows_its_answers(reported: Run) -> None:
    status = reported("status", CUT, "--json")
    assert (status["samples"], status["answered"]) == (120, 33)
    assert "resume" in status["needs"]


def test_what_evaluation_wrote_is_read_whole_and_written_back(home: dict[str, Experiment]) -> None:
    for one in (home[WHOLE], home[SHORT]):
        before = one.performance_file.read_bytes()
        write_json(one.performance_file, performance_of(one).to_json())
        assert one.performance_file.read_bytes() == before
        before = one.metrics_file.read_bytes()
        read = metrics_of(one).to_json()
        for table in read["run_tasks"].values():
            for count in ("responded", "ok", "unreadable", "failed"):  # it did not count these yet
                del table[count]
        write_json(one.metrics_file, read)
        assert one.metrics_file.read_bytes() == before


@pytest.mark.long
def test_scores_and_reports_are_read_and_written_again(reported: Run, tmp_path: Path) -> None:
    scores = reported("report", WHOLE, "--json")["run_tasks"]["vqa"]["metrics"]
    assert (scores["anls"]["value"], scores["exact_match"]["n"]) == (1.0, 12)
    reported("report", WHOLE, "--format", "markdown,json", "--to", str(tmp_path / "report"))
    assert "exact_match" in (tmp_path / "report" / "report.md").read_text()
    again = reported("score", WHOLE, "--json")
    assert "1.0" in json.dumps(again)


def test_they_are_compared_sample_by_sample(reported: Run) -> None:
    text = json.dumps(reported("compare", WHOLE, SHORT, "--json"))
    assert "max_tokens" in text  # what is configured otherwise
    assert "exact_match" in text


def test_hours_history_and_exports_read_them(reported: Run, tmp_path: Path) -> None:
    assert reported("usage", WHOLE, "--json")
    reported("history", "--rebuild")
    assert WHOLE in json.dumps(reported("history", "anls", "--plan", "kept", "--json"))
    for what, rows in (("responses", 12), ("scores", 12), ("events", 10)):
        table = tmp_path / f"{what}.jsonl"
        reported("export", WHOLE, "--what", what, "--out", str(table))
        assert len(table.read_text().splitlines()) >= rows, what


# --- what jobs of then start ----------------------------------------------------------------------------

PICKLE = (
    b"ccopy_reg\n_reconstructor\np0\n(chpcbench.launch.element\nElement\np1\nc__builtin__\nobject\np2\nNtp3\n"
    b"Rp4\n(dp5\nVmodule\np6\nVhpcbench.worker\np7\nsVarguments\np8\n(V/x\np9\nVg0\np10\nV0\np11\ntp12\n"
    b"sVgpus\np13\nNsb."
)
"""The pickle that 4f8fdd5 handed to submitit, by protocol 0."""


def test_a_job_that_was_queued_then_calls_what_it_would_have_called() -> None:
    found = pickle.loads(PICKLE)
    assert isinstance(found, ArrayTask)
    assert (found.module, found.arguments, found.gpus) == (
        "hpcbench.worker",
        ("/x", "g0", "0"),
        None,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("launch.local", "submit/local.py"),
        ("launch.fingerprint", ""),
        ("evaluation.looks", "comparison/interim.py"),
        ("notifiers.sending", "notify/deliver.py"),
        ("tracking.apart", "tracking/tracker_process.py"),
    ],
)
def test_old_names_of_programs_start_the_new_ones(old: str, new: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"hpcbench.{old}", str(tmp_path / "nothing"), "vqa"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=120)
    if new:  # without its job it fails in its own code
        assert f"hpcbench/{new}" in done.stderr
    else:
        assert json.loads(done.stdout)
