"""Results of an evaluation that cannot be read any more: every verb says so in a line, with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Metrics, metrics_of, scores
from hpcbench.experiment.view.performance_json import Performance, performance_of
from hpcbench.files.atomic import write_json
from hpcbench.reporting.writing import report
from hpcbench.status import status
from hpcbench.usage.gpu_hours import usage_of
from tests.unit import small
from tests.unit.command import Cli

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: b"\0" * len(whole),
    "half a character": lambda whole: whole[:1] + b"\xd0" + whole[1:],
    "a list": lambda whole: b"[]",
    "tables that are none": lambda whole: b'{"run_tasks": {"rt": 1}, "sweeps": {}}',
    "a count that is none": lambda whole: whole.replace(b'ed": 4,', b'ed": "many",'),
    "no number": lambda whole: whole.replace(b'"n": 4', b'"n": NaN'),
    "deep": lambda whole: b"[" * 200_000,
    "of another version": lambda whole: json.dumps({**json.loads(whole), "version": 1}).encode(),
}


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """An experiment that has ended and was scored."""
    made = small.experiment(tmp_path, [small.record(number) for number in range(4)])
    small.write_attempt(made, 0, 1, [small.response(f"s{number}") for number in range(4)])
    with EventLog(made.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("handed", step="")
    made.outcome_file.write_text('{"version": 1, "round": 0, "state": "done", "shards_left": []}')
    evaluate(made)
    return made


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("read", [metrics_of, performance_of])
def test_a_damaged_result_is_one_line_with_what_writes_it_again(
    here: Experiment,
    read: Callable[[Experiment], Metrics | Performance],
    damage: Callable[[bytes], bytes],
    cli: Cli,
) -> None:
    path = here.metrics_file if read is metrics_of else here.performance_file
    whole = read(here)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    with pytest.raises(EnvironmentFault, match=f"hpcbench score {here.id}") as reported:
        read(here)
    assert str(path) in str(reported.value)
    assert "\n" not in str(reported.value)
    if read is metrics_of:
        for arguments in (["report", here.id], ["report", here.id, "--json"]):
            said = cli.both(*arguments, code=3)
            assert said.err.strip() == f"hpcbench: {reported.value}"
    with pytest.raises(EnvironmentFault):
        report(here)
    evaluate(here)
    assert path.read_bytes() == sound
    assert read(here) == whole


def test_status_names_damaged_scores_and_still_tells_the_rest(here: Experiment) -> None:
    here.metrics_file.write_bytes(b"{")
    now = status(here)
    (failure,) = now.failures
    assert "is damaged" in failure.cause
    assert (now.state, now.answered) == ("done", 4)


def test_damaged_hours_are_counted_again(here: Experiment) -> None:
    counted = usage_of(here)
    for junk in (b"", b"\0\0\0", b"[]", b'{"version": 1}'):
        here.usage_file.write_bytes(junk)
        assert usage_of(here) == counted


def test_what_is_read_is_written_back_with_the_same_bytes(here: Experiment) -> None:
    """The writer and all readers share one type: it neither drops, adds nor rewrites anything."""
    for path, read in ((here.metrics_file, metrics_of), (here.performance_file, performance_of)):
        whole = path.read_bytes()
        found: Metrics | Performance = read(here)
        write_json(path, found.to_json())
        assert path.read_bytes() == whole


def test_what_a_later_version_adds_is_kept(here: Experiment) -> None:
    data = json.loads(here.performance_file.read_bytes())
    data["run_tasks"]["rt"]["window"]["shape"] = [1, 2.0, None]
    write_json(here.performance_file, data)
    assert performance_of(here).to_json() == data


def test_one_damaged_run_task_does_not_hide_the_others(here: Experiment) -> None:
    data = json.loads(here.metrics_file.read_bytes())
    data["run_tasks"] |= {"cut": {"asked": 4}, "none": 1, "text": {"asked": 4, "answered": "x"}}
    write_json(here.metrics_file, data)
    assert list(scores(here)) == ["rt"]
    with pytest.raises(
        EnvironmentFault, match="is damaged: run_tasks.cut: .*counts of samples are missing"
    ):
        metrics_of(here)


def test_what_an_engine_says_of_its_memory_ends_no_evaluation(here: Experiment) -> None:
    """Engines may be plugins: a size that is no whole number is written as they said it."""
    with EventLog(here.worker_events("g0", "1-0")) as log:
        log.write("monitor", run_task="rt", memory={"weights": 1.5e9, "of_a_plugin": [1]})
    evaluate(here)
    memory = performance_of(here).run_tasks["rt"].memory
    assert memory is not None
    assert memory.to_json() == {"weights": 1.5e9, "of_a_plugin": [1]}
