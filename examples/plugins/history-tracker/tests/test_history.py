"""One file, many experiments, several processes."""

from __future__ import annotations

import json
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hpcbench_example_history import History, append_once, lines_of, read
from pydantic import ValidationError

ENTRY = {"value": 0.5, "low": 0.4, "high": 0.6, "level": 0.95, "n": 4, "clusters": 2, "method": "mean",
         "signature": "anls|v1", "higher_is_better": True}  # fmt: skip
TABLES: dict[str, Any] = {
    "id": "e1",
    "plan": {"name": "p"},
    "metrics": {"run_tasks": {"a": {"coverage": 0.75, "metrics": {"anls": ENTRY, "x": None}}}},
}


def test_an_experiment_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    assert append_once(path, "a", [{"experiment": "a", "value": 1}])
    assert append_once(path, "b", [{"experiment": "b", "value": "a"}])
    assert not append_once(path, "a", [{"experiment": "a", "value": 3}])
    assert [line["value"] for line in read(path)] == [1, "a"]


def test_every_metric_of_every_run_task_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for one in ("e1", "e1", "e2"):
        History({"path": str(path)}).log({**TABLES, "id": one})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [*lines_of(TABLES), *lines_of({**TABLES, "id": "e2"})]
    assert lines[0]["value"] == 0.5
    assert lines[0]["plan"] == "p"
    assert lines[1]["value"] is None
    assert lines[1]["coverage"] == 0.75


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"experiment": "a"}\n{"experiment": "b", "val')
    assert append_once(path, "b", [{"experiment": "b", "value": 2}])
    assert [line["experiment"] for line in read(path)] == ["a", "b"]


def test_text_of_any_kind_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for _ in range(2):
        append_once(path, "é\ud83d\n", [{"experiment": "é\ud83d\n"}])
    assert len(path.read_bytes().splitlines()) == 1
    assert list(read(path)) == [{"experiment": "é\ud83d\n"}]


def write(path: Path, number: int) -> bool:
    lines = [
        {"experiment": str(number % 20), "line": line, "long": "x" * 500} for line in range(50)
    ]
    return append_once(path, str(number % 20), lines)


def test_several_processes_mix_nothing_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        done = list(pool.map(write, [path] * 80, range(80)))
    assert sum(done) == 20
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 20 * 50
    for begin in range(0, len(lines), 50):
        assert len({line["experiment"] for line in lines[begin : begin + 50]}) == 1
        assert [line["line"] for line in lines[begin : begin + 50]] == list(range(50))


def full(path: Path) -> str:
    """In a process of its own, whose files may not grow."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        append_once(path, "b", [{"experiment": "b", "long": "x" * 1000}])
    except OSError as error:
        return str(error)
    return "written"


def test_what_cannot_be_written_whole_is_not_there_at_all(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_once(path, "a", [{"experiment": "a"}])
    before = path.read_bytes()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert "could be written" in pool.submit(full, path).result()
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 in (0o640, 0o600)


@pytest.mark.parametrize("options", [{}, {"path": "x", "file": "y"}])
def test_options_of_no_use_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        History(options)
