"""Results go out: known by their hashes, the manifest last, and no fault of theirs is the experiment's."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hpcbench import finalise
from hpcbench.data import storage
from hpcbench.data.upload import MANIFEST, Uploaded, upload
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, read_lines
from hpcbench.files.hashing import hash_file
from hpcbench.reporting import upload as uploading
from hpcbench.reporting.upload import upload_results
from tests.unit.command import Cli
from tests.unit.small import experiment, record


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    (folder / "b.jsonl").write_text("1\n")
    return folder


def send(results: Path, *more: str) -> Uploaded:
    files = sorted([*results.iterdir(), *(results / name for name in more)])
    place, log = results.parent / "out", results.parent / "uploads.jsonl"
    return upload(results, files, f"file://{place}", {}, log)


def listed(results: Path) -> dict[str, str]:
    """Entries of the manifest at the other end."""
    files = read_json(results.parent / "out" / MANIFEST)["files"]
    return {one["path"]: one["sha256"] for one in files}


class Puts:
    """Events as a file is sent, by its name; then it is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        put = storage.FileStorage.put
        self.sent: list[str] = []

        def spied(self_: storage.FileStorage, source: Path, url: str, path: str) -> None:
            self.before(path)
            put(self_, source, url, path)
            self.sent.append(path)
            self.after(path)

        monkeypatch.setattr(storage.FileStorage, "put", spied)

    def before(self, path: str) -> None:
        pass

    def after(self, path: str) -> None:
        pass


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Puts:
    return Puts(monkeypatch)


def test_a_manifest_that_did_not_get_through_is_sent_the_next_time(
    results: Path, puts: Puts
) -> None:
    def breaks(path: str) -> None:
        if path == MANIFEST:
            raise OSError("connection reset")

    puts.before = breaks  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFault, match="connection reset"):
        send(results)
    puts.before = lambda path: None  # type: ignore[method-assign]
    assert send(results).sent == 0
    assert set(listed(results)) == {"a.json", "b.jsonl"}
    puts.sent.clear()
    assert send(results).sent == 0
    assert puts.sent == []


def test_the_manifest_tells_of_a_file_that_is_wanted_no_more(results: Path) -> None:
    send(results)
    (results / "b.jsonl").unlink()
    assert send(results).sent == 0
    assert set(listed(results)) == {"a.json"}


def test_a_file_that_is_gone_before_it_is_read_is_left_out_and_reported(results: Path) -> None:
    done = send(results, "gone.jsonl")
    assert (done.sent, done.left) == (2, ("gone.jsonl is gone",))
    assert set(listed(results)) == {"a.json", "b.jsonl"}


def test_a_file_that_goes_away_while_it_is_sent_is_left_out_and_reported(
    results: Path, puts: Puts
) -> None:
    puts.before = lambda path: path == "b.jsonl" and (results / path).unlink()  # type: ignore
    done = send(results)
    assert (done.sent, done.left) == (1, ("b.jsonl is gone",))
    assert set(listed(results)) == {"a.json"}


def test_a_file_that_changes_while_it_is_sent_is_not_named_by_a_hash_it_has_not(
    results: Path, puts: Puts
) -> None:
    changing = results / "b.jsonl"
    puts.before = lambda path: path == "b.jsonl" and changing.write_text("1\n2\n")  # type: ignore
    done = send(results)
    assert (done.sent, done.left) == (
        1,
        ("b.jsonl changed while it was sent; the next upload sends it again",),
    )
    assert set(listed(results)) == {"a.json"}
    puts.before = lambda path: None  # type: ignore[method-assign]
    assert send(results) == Uploaded(1)
    assert listed(results)["b.jsonl"] == hash_file(changing)
    assert (results.parent / "out/b.jsonl").read_text() == "1\n2\n"


def test_a_file_that_may_not_be_read_is_one_line(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("hpcbench.data.upload.hash_file", refuses)
    with pytest.raises(EnvironmentFault, match=r"cannot upload to .*Permission denied.*a\.json"):
        send(results)


def test_the_second_of_two_uploads_says_that_one_is_running(results: Path, puts: Puts) -> None:
    started, go_on = threading.Event(), threading.Event()

    def waits(path: str) -> None:
        started.set()
        go_on.wait(20)

    puts.before = waits  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, results)
        assert started.wait(20)
        try:
            with pytest.raises(
                EnvironmentFault, match=rf"process {os.getpid()} on .* is uploading"
            ):
                send(results)
        finally:
            go_on.set()
        assert first.result(20).sent == 2
    names = [one["path"] for one in read_lines(results.parent / "uploads.jsonl")]
    assert sorted(names) == ["a.json", "b.jsonl", MANIFEST]
    assert send(results).sent == 0
    assert not list(results.parent.glob("*.lock"))


# --- of an experiment ----------------------------------------------------------------------------------


def with_places(root: Path, *urls: str) -> Experiment:
    here = experiment(root, [record(1)])
    data = json.loads(here.resolved_file.read_text())
    data["plan"].update(upload=[{"url": url} for url in urls], stages=["inference"])
    here.resolved_file.write_text(json.dumps(data))
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("handed")
    return Experiment(here.path)


def test_the_end_of_an_experiment_is_uploaded_after_an_upload_that_started_before(
    tmp_path: Path, puts: Puts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = with_places(tmp_path, f"file://{tmp_path}/out")
    started = threading.Event()

    def waits(path: str) -> None:
        if not started.is_set():
            started.set()
            time.sleep(0.5)

    puts.before = waits  # type: ignore[method-assign]
    monkeypatch.setattr(finalise, "tell", lambda *given: [])
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(upload_results, here)
        assert started.wait(20)
        finalise.conclude(here)
        assert "error" not in before.result(20)[0]
    assert "could not upload" not in capsys.readouterr().err
    assert (tmp_path / "out" / here.id / here.outcome_file.name).exists()


@pytest.mark.parametrize("fault", [KeyError("no such part"), RuntimeError("of a library")])
def test_a_storage_that_raises_anything_keeps_no_other_place_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    put = storage.FileStorage.put

    def breaks(self: storage.FileStorage, source: Path, url: str, path: str) -> None:
        if "/bad/" in url:
            raise fault
        put(self, source, url, path)

    monkeypatch.setattr(storage.FileStorage, "put", breaks)
    here = with_places(tmp_path, f"file://{tmp_path}/bad", f"file://{tmp_path}/good")
    bad, good = upload_results(here)
    assert type(fault).__name__ in bad["error"]
    assert good["sent"] >= 2


def test_all_places_together_wait_no_longer_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def slow(*given: Any) -> Any:
        waits.append(given[-1])
        time.sleep(0.2)
        raise EnvironmentFault("another is uploading")

    monkeypatch.setattr(uploading, "upload", slow)
    upload_results(with_places(tmp_path, "file:///a", "file:///b", "file:///c"), patience=0.3)
    assert 0.3 >= waits[0] > waits[1] > waits[2] == 0.0


def test_an_upload_that_raises_anything_fails_no_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(experiment: Experiment, patience: float) -> None:
        raise ValueError("whatever it is")

    reported: list[str] = []
    monkeypatch.setattr(finalise, "upload_results", breaks)
    monkeypatch.setattr(finalise, "tell", lambda *given: reported.append(given[1]) or [])
    finalise.conclude(with_places(tmp_path, f"file://{tmp_path}/out"))
    assert reported == ["failed"]
    assert "could not upload: ValueError(" in capsys.readouterr().err


def test_what_was_left_out_is_reported_by_the_verb(tmp_path: Path, puts: Puts, cli: Cli) -> None:
    here = with_places(tmp_path, f"file://{tmp_path}/out")
    grows = here.path / "more.jsonl"
    grows.write_text("1\n")
    puts.after = lambda path: path == grows.name and os.truncate(grows, 0)  # type: ignore
    said = cli("upload", here.path)
    assert "more.jsonl changed while it was sent; the next upload sends it again" in said
