"""One squeue call for all readers of a user, and what they see when Slurm is silent. On a FAKE Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm import queue, snapshot
from hpcbench.slurm.shared_answer import private_folder
from tests.conftest import ROOT
from tests.unit.slurm.fake_slurm import Fake


def test_all_jobs_come_from_one_question_however_often_they_are_read(
    fake: Fake, folder: Path
) -> None:
    fake.job("4711_0")
    fake.job("4711_[3-9%2]", state="PENDING")
    for _ in range(5):
        now = snapshot(folder=folder)
    assert len(fake.calls("squeue")) == 1
    assert now.fault is None
    assert [job.id for job in now.of_array("4711")] == ["4711_0", "4711"]
    waiting = now.find("4711_5")
    assert waiting is not None
    assert waiting.tasks == 7
    assert now.find("4711_2") is None


@pytest.mark.long
def test_readers_in_other_processes_share_the_answer(fake: Fake, folder: Path) -> None:
    fake.job("1")
    fake.waits("squeue", 0.5)
    code = (
        "import sys; from pathlib import Path; from hpcbench.slurm import snapshot\n"
        "print(len(snapshot(folder=Path(sys.argv[1])).jobs))"
    )
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]
    assert [reader.communicate()[0].strip() for reader in readers] == ["1"] * 4
    assert len(fake.calls("squeue")) == 1


def test_while_one_asks_others_go_on_with_the_old_answer(fake: Fake, folder: Path) -> None:
    fake.job("1")
    old = snapshot(folder=folder)
    time.sleep(0.3)
    fake.job("2")
    fake.holds("squeue")
    asking = threading.Thread(target=lambda: snapshot(0.1, folder=folder))
    asking.start()
    while len(fake.calls("squeue")) < 2:
        time.sleep(0.02)
    assert snapshot(0.2, folder=folder).jobs == old.jobs
    fake.lets_go("squeue")
    asking.join()
    assert len(snapshot(folder=folder).jobs) == 2


def test_never_are_two_questions_put_at_once(fake: Fake, folder: Path) -> None:
    fake.job("1")
    fake.waits("squeue", 0.1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: snapshot(0, folder=folder), range(12)))
    spans = sorted(fake.spans("squeue"))
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    assert len(spans) < 12, "who waited for another's question that began later takes its answer"


def test_an_rpc_error_keeps_the_last_good_snapshot_and_says_so(fake: Fake, folder: Path) -> None:
    fake.job("1")
    good = snapshot(folder=folder)
    fake.fails(
        "squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    )
    bad = snapshot(0, folder=folder)
    assert bad.jobs == good.jobs
    assert bad.time == good.time
    assert bad.fault == (
        "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    )
    calls = len(fake.calls("squeue"))
    assert snapshot(folder=folder).fault == bad.fault
    assert len(fake.calls("squeue")) == calls, "a Slurm in trouble is not asked more often"
    fake.works("squeue")
    assert snapshot(0, folder=folder).fault is None


@pytest.mark.parametrize(
    "said", ["squeue: error: Invalid user: x", "squeue: squeue: error: Invalid user: x"]
)
def test_a_fault_names_its_command_once(fake: Fake, folder: Path, said: str) -> None:
    fake.fails("squeue", said)
    assert snapshot(folder=folder).fault == "squeue: error: Invalid user: x"


def test_a_slurm_that_never_answered_gives_no_jobs_of_no_time_with_the_cause(
    fake: Fake, folder: Path
) -> None:
    fake.lacks("squeue")
    now = snapshot(folder=folder)
    assert (now.jobs, now.time) == ((), 0)
    assert now.fault is not None
    assert "no `squeue` on PATH" in now.fault
    with pytest.raises(EnvironmentFault, match="no `squeue`"):
        queue()


def test_an_answer_from_before_a_moment_will_not_do_for_who_says_so(
    fake: Fake, folder: Path
) -> None:
    fake.job("1")
    snapshot(folder=folder)
    submitted = time.time()
    fake.job("2")
    assert snapshot(newer_than=submitted, folder=folder).find("2") is not None
    assert len(fake.calls("squeue")) == 2
    snapshot(newer_than=time.time() + 3600, folder=folder)  # a clock that goes ahead cannot hang it
    assert len(fake.calls("squeue")) == 3


def test_the_right_to_ask_of_a_killed_reader_is_taken_over(fake: Fake, folder: Path) -> None:
    fake.job("1")
    snapshot(folder=folder)
    file = next(folder.glob("*.json"))
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    right = file.with_suffix(".asking")
    right.write_text(json.dumps({"host": os.uname().nodename, "pid": child.pid}) + "\n")
    assert snapshot(0, folder=folder).fault is None
    assert len(fake.calls("squeue")) == 2
    assert not right.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": 3}', '{"other": 1}', "\x00"])
def test_a_damaged_file_is_no_answer(fake: Fake, folder: Path, content: str) -> None:
    fake.job("1")
    snapshot(folder=folder)
    next(folder.glob("*.json")).write_text(content)
    assert len(snapshot(folder=folder).jobs) == 1


def test_a_folder_that_cannot_be_written_costs_the_sharing_and_not_the_answer(
    fake: Fake, tmp_path: Path
) -> None:
    fake.job("1")
    assert len(snapshot(folder=tmp_path / "fake" / "squeue").jobs) == 1


def test_a_squeue_that_misses_our_fields_is_asked_for_json(fake: Fake, folder: Path) -> None:
    # Written by hand after what 22.05 does with an unknown field: blank lines and exit code 0.
    answer = {"jobs": [{"job_id": 5, "job_state": ["RUNNING"], "name": "n"}], "errors": []}
    (fake.folder / "squeue").write_text(
        f"#!/bin/sh\ncase \"$*\" in *--json*) echo '{json.dumps(answer)}';; *) echo; echo;; esac\n"
    )
    assert [job.id for job in snapshot(folder=folder).jobs] == ["5"]


def test_the_users_own_squeue_settings_do_not_change_the_answer(
    fake: Fake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "SQUEUE_FORMAT",
        "SQUEUE_STATES",
        "SLURM_CLUSTERS",
        "SLURM_JOB_ID",
        "SACCT_FORMAT",
    ):
        monkeypatch.setenv(name, "x")
    (fake.folder / "env").symlink_to("/usr/bin/env")
    (fake.folder / "squeue").write_text(f"#!/bin/sh\nenv > {fake.folder}/seen\n")
    assert snapshot(folder=folder).jobs == ()
    seen = dict(line.split("=", 1) for line in (fake.folder / "seen").read_text().splitlines())
    assert {name for name in seen if name.startswith(("SLURM", "SQUEUE", "SACCT"))} == {
        "SLURM_CONF",
        "SLURM_TIME_FORMAT",
        "SLURM_BITSTR_LEN",
    }


def test_the_shared_folder_is_private_or_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = private_folder()
    assert folder == runtime / "hpcbench"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert private_folder() is None, "a link may lead where others can write"
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    assert private_folder() is None
    runtime.chmod(0o755)
    assert private_folder() != folder
