"""`hpcbench gc`: what ended experiments give back, and what it never touches."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench import slurm
from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import Owner, answers_of, claim, shard_states
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission_lock import alone
from hpcbench.files.archive import FOLDED
from hpcbench.files.atomic import read_json, write_atomic, write_json
from hpcbench.remote import unused_copies
from hpcbench.remote.pipe_transfer import Parcel, ParcelFile, receive, send
from hpcbench.site import gc
from tests.unit import small
from tests.unit.command import Cli

DAY = 86400


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home about whose jobs no accounting speaks."""
    monkeypatch.setattr(slurm, "queue", list)
    return tmp_path


def ended(root: Path, name: str = "20261120-1432-plan-aaaa", **manifest: object) -> Experiment:
    """An experiment that came to its end, with what a kill left lying about."""
    made = small.experiment(root / "making", [small.record(number) for number in range(8)])
    here = Experiment(root / "experiments" / name)
    here.path.parent.mkdir(exist_ok=True)
    made.path.rename(here.path)
    resolved = read_json(here.resolved_file)
    resolved["plan"]["executor"] = "slurm"
    write_json(here.resolved_file, resolved)
    write_json(here.manifest_file, {**read_json(here.manifest_file), "id": name, **manifest})
    for index in range(2):
        answers = [small.response(f"s{4 * index + place}") for place in range(4)]
        small.write_attempt(here, index, 1, answers)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("intent", step="g0", group="g0", first=0, workers=1)
        log.write("submitted", step="g0", job="17")
        log.write("handed")
    with EventLog(here.worker_events("g0", "17_0-0")) as log:
        log.write("started")
    (here.workers_dir / "g0.17_0-0.events.ballast").write_bytes(b"x" * 65536)
    here.jobs_dir.mkdir()
    for file in ("17_0_submitted.pkl", "17_0_result.pkl", "17_0_log.err"):
        (here.jobs_dir / file).write_bytes(b"" if file.endswith("err") else b"pickle")
    (here.jobs_dir / "17_0_log.out").write_text("worker ended\n")
    (here.shards_dir("rt") / ".00000.2.events.jsonl.0123abcd").write_text("{")
    age(here.path, 2 / 24)
    return here


def age(folder: Path, days: float) -> None:
    """Let all of it be as old as that."""
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then), follow_symlinks=False)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def said(cli: Cli, *arguments: str, code: int = 0) -> dict[str, object]:
    consent = [] if "--dry-run" in arguments else ["--yes"]
    found: dict[str, object] = cli.json("gc", "--json", *consent, *arguments, code=code)
    return found


def states(reported: dict[str, object]) -> dict[str, str]:
    rows = reported["experiments"]
    assert isinstance(rows, list)
    return {row["id"]: row["done"] for row in rows}


def test_what_a_kill_left_is_folded_and_removed_and_no_answer_is_lost(root: Path, cli: Cli) -> None:
    here = ended(root)
    before = dict(answers_of(here, "rt"))
    reported = said(cli)
    assert dict(answers_of(here, "rt")) == before
    assert names(here.path) == {
        "resolved.json", "manifest.json", "chosen.json", "submission.jsonl",
        f"shards/rt/{FOLDED}", f"workers/{FOLDED}", "jobs/17_0_log.out",
    }  # fmt: skip
    (row,) = reported["experiments"]  # type: ignore[misc]
    assert row["done"] == "cleared"
    assert row["after"]["files"] == 7 < row["before"]["files"]
    assert row["after"]["bytes"] < row["before"]["bytes"]
    assert states(said(cli)) == {here.id: "nothing to do"}


def test_a_dry_run_says_the_same_and_touches_nothing(root: Path, cli: Cli) -> None:
    here = ended(root)
    before = {path: path.lstat().st_mtime_ns for path in here.path.rglob("*")}
    reported = said(cli, "--dry-run", "--older", "0")
    assert states(reported) == {here.id: "would be deleted"}
    assert states(said(cli, "--dry-run")) == {here.id: "would be cleared"}
    assert {path: path.lstat().st_mtime_ns for path in here.path.rglob("*")} == before
    printed = cli("gc", "--dry-run")
    assert "5 files to fold, 5 to remove" in " ".join(printed.split())
    assert "→" not in printed  # it does not know the size afterwards


def test_what_runs_is_left_alone(root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ended(root)
    before = names(here.path)
    monkeypatch.setattr(slurm, "queue", lambda: [slurm.Job("17_0", "hpcbench", "RUNNING")])
    reported = said(cli, "--older", "0", "--yes")
    assert states(reported) == {here.id: "left alone"}
    assert names(here.path) == before


def test_without_an_answer_of_slurm_it_is_unknown(
    root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ended(root)
    before = names(here.path)

    def silent() -> list[slurm.Job]:
        raise EnvironmentFault("squeue does not answer")

    monkeypatch.setattr(slurm, "queue", silent)
    reported = said(cli, "--older", "0", "--yes")
    (row,) = reported["experiments"]  # type: ignore[misc]
    assert (row["done"], row["reason"]) == ("left alone", "squeue does not answer")
    assert names(here.path) == before


def test_an_interrupted_submission_may_have_unknown_jobs(root: Path, cli: Cli) -> None:
    here = ended(root)
    with EventLog(here.submission_file) as log:
        log.write("round", round=1, groups=[])
        log.write("intent", step="g0", group="g0", first=0, workers=1)
    before = names(here.path)
    assert states(said(cli, "--older", "0", "--yes")) == {here.id: "left alone"}
    assert names(here.path) == before


def test_who_submits_right_now_is_not_disturbed(root: Path, cli: Cli) -> None:
    here = ended(root)
    with alone(here):
        assert states(said(cli, "--older", "0", "--yes")) == {here.id: "left alone"}
    line = {"host": socket.gethostname(), "pid": gone(), "time": time.time()}
    write_atomic(here.path / "submission.lock", json.dumps(line) + "\n")
    assert states(said(cli)) == {here.id: "cleared"}
    assert "submission.lock" not in names(here.path)


def gone() -> int:
    """A process that was."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_shard_that_a_worker_holds_is_not_folded(root: Path, cli: Cli) -> None:
    """Its worker is dead, but only `finalise` and `resume` may say so."""
    here = ended(root)
    shutil.rmtree(here.shards_dir("rt"))
    held = claim(here, shard_states(here, ["rt"])[0], Owner("17_0", 0, "n", 1))
    assert held is not None
    held.abandon()
    said(cli)
    assert not (here.shards_dir("rt") / FOLDED).exists()


def test_a_file_that_may_still_be_written_stays(root: Path, cli: Cli) -> None:
    here = ended(root)
    young = here.path / ".metrics.json.0123abcd"
    young.write_text("{")
    strange = [here.path / ".nfs000000012", here.path / ".keep", here.path / "report" / "a.pkl"]
    strange[2].parent.mkdir()
    for path in strange:
        path.write_text("mine")
    age(here.path / "report", 9)
    said(cli)
    assert all(path.exists() for path in [young, *strange])


# --- whole experiments -----------------------------------------------------------------------------------


def test_old_experiments_are_deleted_when_it_is_meant(root: Path, cli: Cli) -> None:
    old, young = ended(root), ended(root, "20261121-1000-plan-bbbb")
    age(old.path, 40)
    err = cli.err("gc", "--older", "30")
    assert str(old.path) in err
    assert "--yes" in err
    assert old.path.exists()
    reported = said(cli, "--older", "30", "--yes")
    assert states(reported) == {old.id: "deleted", young.id: "cleared"}
    assert not old.path.exists()
    assert young.path.exists()


@pytest.mark.parametrize(("answer", "left"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_on_a_terminal_it_asks(
    root: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, answer: str, left: bool
) -> None:
    class Terminal:
        """A terminal at which a user types."""

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    here = ended(root)
    age(here.path, 40)
    monkeypatch.setattr(sys, "stdin", Terminal())
    loose = names(here.path)
    said = cli.both("gc", "--older", "30")
    assert here.path.exists() == left
    assert "would be deleted" in said.out, "it shows what would go before it asks"
    assert "delete 1 experiment (" in said.err
    if left:
        assert names(here.path) == loose, "no means no, for everything"


def test_nothing_is_folded_or_removed_by_a_script_without_consent(root: Path, cli: Cli) -> None:
    here = ended(root)
    before = names(here.path)
    said = cli.both("gc", code=2)
    assert (
        "gc needs your consent to fold 5 files, remove 5 unneeded paths (give it: --yes)"
        in said.err
    )
    assert "5 files to fold, 5 to remove" in " ".join(said.out.split())
    assert names(here.path) == before
    said_json = cli.json("gc", "--json", "--yes")
    assert states(said_json) == {here.id: "cleared"}
    assert main(["gc"]) == 0, "nothing is left to ask about"


def test_caches_are_listed_with_sizes_and_what_uses_them(
    root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ended(root)
    sif = root / "cache/images" / f"{'a' * 64}-0123456789ab.sif"
    for path in (sif, root / "cache/packages/0a/x.py", root / "hub/hub/models--x/blobs/1"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 5000)
    monkeypatch.setenv("HF_HOME", str(root / "hub"))
    manifest = read_json(here.manifest_file)
    write_json(here.manifest_file, {**manifest, "environments": {"i": {"path": str(sif)}}})
    found = {
        Path(str(one["path"])).name: one for one in cli.json("gc", "--dry-run", "--json")["caches"]
    }
    assert (found["images"]["needed"], found["packages"]["needed"]) == (1, 0)
    assert found["images"]["emptied"] == "hpcbench images prune --older 60"
    assert found["hub"]["needed"] is None
    assert all(one["room"]["bytes"] >= 4096 for one in found.values())
    text = cli("gc", "--dry-run")
    assert "caches, which gc leaves as they are" in text


@pytest.mark.parametrize("named", ["20261120-1432-plan-aaaa", "20261120", "{path}"])
def test_the_baseline_of_another_is_never_deleted(root: Path, cli: Cli, named: str) -> None:
    base = ended(root)
    other = ended(root, "20261121-1000-plan-bbbb", baseline=named.format(path=base.path))
    for here in (base, other):
        age(here.path, 40)
    assert states(said(cli, "--older", "30", "--yes", base.id))[base.id] != "deleted"
    assert base.path.exists()


def test_links_are_not_followed_out_of_the_home(
    root: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "data.pkl").write_text("mine")
    (elsewhere / ".data.0123abcd").write_text("mine")
    here = ended(root)
    (here.jobs_dir / "out").symlink_to(elsewhere)
    (here.path / "link").symlink_to(elsewhere)
    foreign = ended(elsewhere, "20261101-1000-plan-cccc")
    linked = root / "experiments" / "20261101-1000-plan-dddd"
    linked.symlink_to(foreign.path)
    for path in (here.path, foreign.path):
        age(path, 40)
    reported = said(cli, "--older", "30", "--yes")
    assert states(reported)[here.id] == "deleted"
    assert states(reported)[linked.name] != "deleted"
    assert foreign.manifest_file.exists()
    assert (elsewhere / "data.pkl").exists()
    assert (elsewhere / ".data.0123abcd").exists()
    assert states(said(cli, "--older", "30", "--yes", str(foreign.path))) == {
        foreign.id: "nothing to do"
    }


def test_a_deletion_that_was_killed_is_no_experiment_and_is_ended_by_the_next(
    root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = ended(root), ended(root, "20261121-1000-plan-bbbb")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path: None)
        gc.delete(here)
    assert here.id not in cli("list", "--json")
    reported = said(cli)
    assert reported["others"] == [str(root / "experiments" / f".deleted-{here.id}")]
    assert [path.name for path in (root / "experiments").iterdir()] == [other.id]


def test_secrets_of_ended_experiments_are_removed_and_others_kept(
    root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = ended(root), ended(root, "20261121-1000-plan-bbbb")
    with EventLog(runs.submission_file) as log:
        log.write("round", round=1, groups=[])
        log.write("intent", step="g0", group="g0", first=0, workers=1)
        log.write("submitted", step="g0", job="18")
    monkeypatch.setattr(slurm, "queue", lambda: [slurm.Job("18_0", "hpcbench", "PENDING")])
    folder = root / "secrets"
    folder.mkdir(mode=0o700)
    for name in (here.id, runs.id, "20200101-0000-gone-zzzz"):
        (folder / f"{name}.json").write_text("{}")
    said(cli, here.id)
    assert len(list(folder.iterdir())) == 3
    said(cli)
    assert [path.name for path in folder.iterdir()] == [f"{runs.id}.json"]


def parcel(root: Path, text: str) -> Path:
    """A plan as a laptop's `--site` sends it."""
    file = ParcelFile("plan.yaml", len(text), hashlib.sha256(text.encode()).hexdigest())
    one = Parcel((file,))
    here, there = socket.socketpair()
    with here, there, here.makefile("rb") as source, there.makefile("rb") as other:
        far = threading.Thread(target=receive, args=(Wire(other, there), root / "remote"))
        far.start()
        send(Wire(source, here), [one], {file.sha256: text.encode()})
        far.join()
    return root / "remote" / one.name


class Wire:
    """One end of a pair of sockets, as an exchange wants it."""

    def __init__(self, source: Any, sink: socket.socket) -> None:
        self.read, self.readline, self.write = source.read1, source.readline, sink.sendall


def test_what_laptops_sent_goes_with_the_last_experiment_that_names_it(
    root: Path, cli: Cli
) -> None:
    needed, other = parcel(root, "name: needed"), parcel(root, "name: other")
    store, report = root / "remote" / "files", root / "remote" / "lab" / "x" / "report"
    note = root / "remote" / "submissions" / "0123"
    for folder in (report, note):
        folder.mkdir(parents=True)
    here = ended(root, packages=str(needed / "package"))
    age(root / "remote", 30)
    reported = said(cli, "--dry-run")
    assert set(reported["others"]) == {str(other), str(note)}  # type: ignore[call-overload]
    assert said(cli)["others"] == reported["others"]
    assert {path.name for path in (root / "remote").iterdir()} == {
        "files", "lab", "submissions", needed.name,
    }  # fmt: skip
    assert report.is_dir()
    assert len(list(store.iterdir())) == 2, "a file is kept until it has lain there for a day"
    said(cli, "--older", "0", "--yes")
    assert not here.path.exists()
    assert not needed.exists()


def test_a_file_goes_with_the_last_parcel_that_has_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = parcel(root, "name: one"), parcel(root, "name: other")
    age(other, 30)
    later = one.stat().st_ctime + 2 * DAY
    monkeypatch.setattr(time, "time", lambda: later)
    os.utime(one, (later, later))
    gone = {path.name for path in unused_copies.unused(root / "remote", [], 1)}
    assert gone == {other.name, hashlib.sha256(b"name: other").hexdigest()}
    os.utime(one, (0, 0))
    assert len(unused_copies.unused(root / "remote", [], 1)) == 4


def test_what_is_sent_again_is_not_old(root: Path) -> None:
    one = parcel(root, "name: one")
    age(one, 30)
    assert unused_copies.unused(root / "remote", [], 1) == [one]
    parcel(root, "name: one")
    assert unused_copies.unused(root / "remote", [], 1) == []


def test_unused_copies_of_environments_go(root: Path, cli: Cli) -> None:
    copies = root / "cache" / "environments"
    for name in ("runs", "gone", "new"):
        (copies / name).mkdir(parents=True)
    age(copies, 2)
    os.utime(copies / "new")
    ended(root, snapshot=str(copies / "runs"))  # it may be resumed
    assert said(cli, "--dry-run")["others"] == [str(copies / "gone")]
    said(cli)
    assert sorted(path.name for path in copies.iterdir()) == ["new", "runs"]


def test_what_cannot_be_removed_is_reported_and_the_rest_goes(
    root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = root / "cache" / "environments"
    for name in ("a", "b"):
        (copies / name).mkdir(parents=True)
    age(copies, 2)
    plain = gc.remove

    def refuse(path: Path) -> None:
        if path.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        plain(path)

    monkeypatch.setattr(gc, "remove", refuse)
    assert f"could not clear {copies / 'a'}: Permission denied" in cli.err("gc", "--yes", code=3)
    assert [path.name for path in copies.iterdir()] == ["a"]


def test_a_home_without_experiments_is_nothing_to_do(root: Path, cli: Cli) -> None:
    assert cli("gc") == "no experiments\n"


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A descriptor that leaks shows after a few thousand folds, not in a test: so it is counted here."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a look, not a path
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # noqa: PTH208
