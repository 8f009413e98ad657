"""What evaluation wrote and nobody can read any more: every verb says so in a line, with what mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import EventLog
from hpcbench.experiment.results import metrics_of, performance_of
from hpcbench.reporting import report
from hpcbench.status import status
from hpcbench.usage.report import usage_of
from tests.unit import small

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: b"\0" * len(whole),
    "half a character": lambda whole: whole[:1] + b"\xd0" + whole[1:],
    "a list": lambda whole: b"[]",
    "tables that are none": lambda whole: b'{"run_tasks": {"rt": 1}, "sweeps": {}}',
    "deep": lambda whole: b"[" * 200_000,
    "of another version": lambda whole: json.dumps({**json.loads(whole), "version": 1}).encode(),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment that has ended and was scored."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = small.experiment(tmp_path, [small.record(number) for number in range(4)])
    small.write_attempt(made, 0, 1, [small.response(f"s{number}") for number in range(4)])
    with EventLog(made.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("handed", step="")
    made.outcome_file.write_text('{"version": 1, "round": 0, "state": "done", "shards_left": []}')
    evaluate(made)
    return made


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("read", [metrics_of, performance_of])
def test_a_damaged_result_is_one_line_with_what_writes_it_again(
    here: Experiment,
    read: Callable[[Experiment], dict[str, Any]],
    damage: Callable[[bytes], bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = here.metrics_file if read is metrics_of else here.performance_file
    whole = read(here)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))

    with pytest.raises(EnvironmentFault, match=f"hpcbench score {here.id}") as told:
        read(here)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)

    if read is metrics_of:
        for arguments in (["report", here.id], ["report", here.id, "--json"]):
            assert main(arguments) == 3
            said = capsys.readouterr()
            assert said.err.strip() == f"hpcbench: {told.value}"
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


def test_damaged_hours_are_counted_anew(here: Experiment) -> None:
    counted = usage_of(here)
    for junk in (b"", b"\0\0\0", b"[]", b'{"version": 1}'):
        here.usage_file.write_bytes(junk)
        assert usage_of(here) == counted
