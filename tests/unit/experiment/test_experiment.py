"""The experiment's directory: what a kill, a full disk or a race leaves behind."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.experiment.claims import (
    MAX_FAILED_ATTEMPTS,
    Claim,
    Fenced,
    Owner,
    ShardState,
    claim,
    digest_of,
    release,
    responses_of,
    shard_states,
)
from hpcbench.experiment.layout import Experiment, all_experiments, find, home, new_id
from hpcbench.files.atomic import (
    Appender,
    create_exclusive,
    read_json,
    read_lines,
    replacing,
    write_atomic,
    write_json,
)
from hpcbench.schema.site import Site
from tests.campaign import examples
from tests.conftest import ROOT
from tests.unit import small

OWNER = Owner("4711_0", 0, "n1", 1)

RECORDS = st.dictionaries(
    st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=8), st.none()), max_size=3
)


def child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A Python of its own that runs some lines."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,  # or readline keeps what comes after
    )  # fmt: skip


def said(process: subprocess.Popen[bytes]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    return out.decode()


def fresh(folder: Path, samples: int = 4) -> Experiment:
    return small.experiment(folder, [small.record(number) for number in range(samples)])


def state(here: Experiment) -> ShardState:
    return shard_states(here, ["rt"])[0]


def taken(here: Experiment) -> Claim:
    mine = claim(here, state(here), OWNER)
    assert mine is not None
    return mine


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(records=st.lists(RECORDS, max_size=4), more=RECORDS)
def test_a_log_cut_at_any_byte_reads_as_its_whole_lines_and_can_be_continued(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, object]],
    more: dict[str, object],
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn.jsonl"
    path.unlink(missing_ok=True)
    with Appender(path) as file:
        for record in records:
            file.write(record)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = records[: whole[:cut].count(b"\n")]
        assert list(read_lines(path)) == kept
        with Appender(path) as file:
            file.write(more)
        assert list(read_lines(path)) == [*kept, more]


def test_a_torn_line_longer_than_a_block_is_cut_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * 200_000)
    Appender(path).close()
    assert path.read_bytes() == b'{"a":1}\n'


def test_half_a_surrogate_pair_in_an_answer_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with Appender(path) as file:
        file.write({"text": 'a\\"\ud83dя\u2028'})
    assert path.read_bytes().decode("utf-8").count("\n") == 1
    assert list(read_lines(path)) == [{"text": 'a\\"\ud83dя\u2028'}]


def test_a_missing_log_is_an_empty_one(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "no.jsonl")) == []


def test_a_pipe_or_device_takes_what_is_written_and_keeps_its_name() -> None:
    ours, theirs = os.pipe()
    try:
        write_atomic(Path(f"/dev/fd/{theirs}"), "one")
        with replacing(Path(f"/proc/self/fd/{theirs}")) as temporary:
            temporary.write_text("two")
        assert os.read(ours, 100) == b"onetwo"
    finally:
        os.close(ours)
        os.close(theirs)


FULL_DISK = """
import resource, sys
from pathlib import Path
from hpcbench.files.atomic import Appender, write_atomic
log, small = Path(sys.argv[1]), Path(sys.argv[2])
file = Appender(log)
file.write({"first": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))
for attempt in (
    lambda: file.write({"second": "x" * 200}),
    lambda: write_atomic(small, "y" * 200),
):
    try:
        attempt()
    except OSError as error:
        print(error.errno)
file.write({"third": 3})
file.close()
"""


def test_a_full_disk_leaves_whole_lines_and_the_old_file(tmp_path: Path) -> None:
    log, kept = tmp_path / "log.jsonl", tmp_path / "kept.json"
    write_atomic(kept, "old")
    assert len(said(child(FULL_DISK, log, kept)).split()) == 2
    assert log.read_text() == '{"first":1}\n{"third":3}\n'
    assert kept.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "log.jsonl"]


REWRITE = """
import sys
from pathlib import Path
from hpcbench.files.atomic import write_atomic
number = 0
while True:
    write_atomic(Path(sys.argv[1]), str(number) * 3000)
    number = (number + 1) % 10
"""


def test_a_reader_sees_the_old_text_or_the_new_one_even_if_the_writer_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "9" * 3000)
    process = child(REWRITE, path)
    end = time.monotonic() + 60
    seen: set[str] = set()
    while len(seen) < 10 and time.monotonic() < end:
        text = path.read_text()
        assert len(text) == 3000
        assert len(set(text)) == 1
        seen.add(text[0])
    process.kill()
    process.communicate()
    assert len(seen) > 2
    assert len(set(path.read_text())) == 1


def test_json_is_the_same_bytes_for_the_same_data_and_never_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": 1, "a": "é"})
    write_json(tmp_path / "b", {"a": "é", "b": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"a": "é", "b": 1}
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a", float("nan"))


RACE = """
import sys, time
from pathlib import Path
from hpcbench.files.atomic import create_exclusive
folder, me = Path(sys.argv[1]), int(sys.argv[2])
while not (folder / "go").exists():
    pass
won = [n for n in range(40) if create_exclusive(folder / "races" / f"{n}.jsonl", {"owner": me})]
print(*won)
"""


@pytest.mark.long
def test_of_many_processes_exactly_one_creates_a_file_and_none_sees_it_empty(
    tmp_path: Path,
) -> None:
    racers = [child(RACE, tmp_path, number) for number in range(4)]
    time.sleep(0.3)
    (tmp_path / "go").touch()
    while any(racer.poll() is None for racer in racers):
        for path in (tmp_path / "races").glob("[0-9]*.jsonl"):
            assert path.read_bytes().endswith(b"}\n")
    wins = {n: me for me, racer in enumerate(racers) for n in map(int, said(racer).split())}
    assert sorted(wins) == list(range(40))
    for number, owner in wins.items():
        assert list(read_lines(tmp_path / "races" / f"{number}.jsonl")) == [{"owner": owner}]
    assert not list((tmp_path / "races").glob(".*"))


def test_a_link_that_nfs_reports_as_taken_but_made_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lost_answer(source: str, target: Path) -> None:
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lost_answer)
    assert create_exclusive(tmp_path / "a.jsonl", {"owner": 1})
    monkeypatch.undo()
    assert not create_exclusive(tmp_path / "a.jsonl", {"owner": 2})


# --- claims -------------------------------------------------------------------------------------------


def test_a_free_shard_is_claimed_once_and_done_shards_not_again(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    first = state(here)
    assert (first.state, first.attempt, first.claimable) == ("free", 0, True)
    mine = taken(here)
    assert claim(here, first, OWNER) is None
    assert state(here).state == "claimed"
    assert state(here).owner == {
        "job": "4711_0", "restart": 0, "host": "n1", "pid": 1, "node": "", "round": 0, "replica": 0,
    }  # fmt: skip
    assert not state(here).claimable
    mine.record(small.response("s0"))
    mine.acknowledge()
    mine.end("done")
    assert state(here).state == "done"
    assert not state(here).claimable


CLAIM = """
import sys
from pathlib import Path
from hpcbench.experiment.claims import Owner, claim, shard_states
from hpcbench.experiment.layout import Experiment
here = Experiment(Path(sys.argv[1]))
while not (here.path / "go").exists():
    pass
for state in shard_states(here, ["rt"]):
    if state.claimable and claim(here, state, Owner(sys.argv[2], 0, "n", 1)) is not None:
        print(state.shard.index)
"""


@pytest.mark.long
def test_many_workers_share_all_shards_and_no_shard_twice(tmp_path: Path) -> None:
    here = fresh(tmp_path, 80)
    workers = [child(CLAIM, here.path, number) for number in range(4)]
    time.sleep(0.5)
    (here.path / "go").touch()
    claimed = [int(index) for worker in workers for index in said(worker).split()]
    assert sorted(claimed) == list(range(20))


@pytest.mark.parametrize("end", ["drained", "failed"])
def test_what_ended_early_is_claimable_and_its_answers_are_kept(tmp_path: Path, end: str) -> None:
    here = fresh(tmp_path)
    mine = taken(here)
    mine.record(small.response("s2"))
    mine.end(end)
    assert state(here).claimable
    again = taken(here)
    assert (again.attempt, again.answered) == (2, {"s2"})


def test_a_released_owner_is_fenced_at_its_next_answer_which_still_counts(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    old = taken(here)
    old.acknowledge()
    before = state(here)
    assert release(here, before, "job is gone")
    assert not release(here, before, "job is gone")
    assert (state(here).state, state(here).failed_attempts) == ("released", 1)
    new = taken(here)
    assert new.attempt == 3
    old.record(small.response("s0", "old"))
    with pytest.raises(Fenced, match="rt/00000: attempt 2 took over"):
        old.acknowledge()
    old.abandon()
    old.abandon()
    new.record(small.response("s0", "new"))
    new.record(small.response("s1", "new"))
    new.end("done")
    assert [(one.sample_id, one.text) for one in responses_of(here, state(here).shard)] == [
        ("s0", "old"),
        ("s1", "new"),
    ]


def test_a_later_attempt_is_fenced_by_the_one_after_it(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    taken(here).end("drained")
    old = taken(here)
    assert release(here, state(here), "job is gone")
    with pytest.raises(Fenced, match="rt/00000: attempt 3 took over"):
        old.acknowledge()
    old.abandon()


def test_answers_whose_file_was_removed_are_fenced_and_a_fault_of_the_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = taken(fresh(tmp_path))
    for number, raised in ((errno.ESTALE, Fenced), (errno.ENOSPC, OSError), (errno.EIO, OSError)):

        def sync(file: Appender, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Appender, "sync", sync)
        with pytest.raises(raised):
            mine.acknowledge()
    monkeypatch.undo()
    mine.abandon()


def test_done_wins_over_a_release_that_came_later(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    mine = taken(here)
    seen = state(here)
    mine.end("done")
    release(here, seen, "thought to be gone")
    assert state(here).state == "done"


def test_a_done_shard_is_asked_again_if_a_release_reopens_it_whatever_came_before(
    tmp_path: Path,
) -> None:
    here = fresh(tmp_path)
    assert (state(here).state, state(here).began) == ("free", 0.0)
    mine = taken(here)
    seen = state(here)
    mine.end("done")
    release(here, seen, "thought to be gone")
    release(here, state(here), "damaged", reopen=True)
    assert (state(here).state, state(here).attempt) == ("released", 3)


def test_a_shard_that_ended_too_many_workers_is_left_alone_and_releases_do_not_count(
    tmp_path: Path,
) -> None:
    here = fresh(tmp_path)
    for number in range(1, MAX_FAILED_ATTEMPTS + 1):
        assert state(here).claimable
        taken(here).abandon()
        release(here, state(here), "killed")
        assert (state(here).failed_attempts, state(here).attempt) == (number, 2 * number)
    assert not state(here).claimable


def test_an_attempt_counts_as_failed_once_it_failed_or_another_was_opened_after_it(
    tmp_path: Path,
) -> None:
    here = fresh(tmp_path)
    first = taken(here)
    assert (state(here).state, state(here).failed_attempts) == ("claimed", 0)
    second = claim(here, state(here), OWNER)
    assert second is not None
    assert (state(here).attempt, state(here).failed_attempts) == (2, 1)
    second.end("failed")
    assert state(here).failed_attempts == 2
    first.abandon()


def test_an_answer_that_a_release_withdrew_is_asked_again_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    here = fresh(tmp_path)
    first = taken(here)
    for name in ("s0", "s1"):
        first.record(small.response(name, "x"))
    first.end("done")
    release(here, state(here), "again", reopen=True, withdrawn=["s0"], answered=1)
    second = taken(here)
    assert (second.attempt, second.answered) == (3, {"s1"})
    second.record(small.response("s0", "y"))
    second.end("drained")
    assert taken(here).answered == {"s0", "s1"}


def test_shards_that_are_skipped_have_no_state(tmp_path: Path) -> None:
    here = small.experiment(tmp_path, [small.record(number) for number in range(8)])
    ids = [one.shard.id for one in shard_states(here, ["rt"])]
    assert [one.shard.id for one in shard_states(here, ["rt"], skip=ids[:1])] == ids[1:]


def test_the_digest_of_answers_changes_with_every_byte_and_every_withdrawn_answer(
    tmp_path: Path,
) -> None:
    found = []
    for name, text in (("a", "yes"), ("b", "yes"), ("c", "yeS")):
        here = fresh(tmp_path / name)
        mine = taken(here)
        mine.record(small.response("s0", text))
        mine.end("done")
        found.append(digest_of(here, "rt"))
        if name == "c":
            release(here, state(here), "again", reopen=True, withdrawn=["s0"])
            found.append(digest_of(here, "rt"))
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_strange_files_beside_the_claims_do_no_harm(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    taken(here).abandon()
    folder = here.shards_dir("rt")
    for name in (
        "notes",
        ".nfs0001",
        "00000.x.events.jsonl",
        "a.1.events.jsonl",
        ".00000.1.events.jsonl.tmp",
    ):
        (folder / name).touch()
    assert here.attempts("rt") == {0: [1]}


def test_the_owner_is_the_array_task_with_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_ID",
        "SUBMITIT_LOCAL_JOB_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    assert Owner.here().id == f"pid{os.getpid()}-0"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert Owner.here().job == "12"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "11")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert Owner.here().id == "11_0-2"


RECORD = """
import os, sys
sys.path.insert(0, os.getcwd())
from pathlib import Path
from hpcbench.experiment.claims import Owner, claim, shard_states
from hpcbench.experiment.layout import Experiment
from tests.unit.small import response
here = Experiment(Path(sys.argv[1]))
mine = claim(here, shard_states(here, ["rt"])[0], Owner(str(os.getpid()), 0, "n", 1))
number = 0
while True:
    name = f"{os.getpid()}.{number}"
    mine.record(response(name, "я" * (number % 997)))
    mine.acknowledge()
    os.write(1, f"{name}\\n".encode())
    number += 1
"""


@pytest.mark.long
def test_a_worker_killed_at_any_moment_loses_no_acknowledged_answer(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    rng = random.Random(1)
    reported: list[str] = []
    for _ in range(3):
        worker = child(RECORD, here.path)
        assert worker.stdout is not None
        reported.append(worker.stdout.readline().decode().strip())
        time.sleep(rng.random() * 0.2)
        worker.send_signal(signal.SIGKILL)
        out, _ = worker.communicate()
        reported += out.decode().split()
        found = [one.sample_id for one in responses_of(here, state(here).shard)]
        assert set(reported) <= set(found)
        assert len(set(found) - set(reported)) <= 3
        release(here, state(here), "killed")
    assert len(reported) > 10


# --- layout -------------------------------------------------------------------------------------------


def experiments(root: Path, *names: str) -> None:
    for age, name in enumerate(reversed(names)):
        here = Experiment(root / "experiments" / name)
        write_json(here.manifest_file, {})
        os.utime(here.manifest_file, (1000 - age, 1000 - age))


def test_an_experiment_is_found_by_id_beginning_path_or_as_the_last(tmp_path: Path) -> None:
    experiments(tmp_path, "20261120-1000-a-abcd", "20261120-1100-a-abcd", "20261120-1100-a-abcdef")
    (tmp_path / "experiments" / "half-made").mkdir()
    assert find(tmp_path, "20261120-10").id == "20261120-1000-a-abcd"
    assert find(tmp_path, "20261120-1100-a-abcd").id == "20261120-1100-a-abcd"
    assert find(tmp_path, "@last").id == "20261120-1100-a-abcdef"
    path = tmp_path / "experiments" / "20261120-1000-a-abcd"
    assert find(Path("/nowhere"), str(path)) == Experiment(path)
    (path / "report").mkdir()
    assert find(Path("/nowhere"), f"{path}/report/..").id == path.name
    assert [one.id[9:13] for one in all_experiments(tmp_path)] == ["1000", "1100", "1100"]


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ("2", "'2' matches several experiments: 20261120-1000-a-aaaa, 20261120-1000-b-bbbb"),
        ("3", "no experiment '3' in "),
        ("20261120-1000-c-aaaa", "did you mean '20261120-1000-a-aaaa'?"),
        ("@lastt", "did you mean '@last'?"),
        ("./nowhere", "nowhere: no such folder"),
        ("/", "/: not the folder of an experiment"),
    ],
)
def test_what_fits_none_or_several_is_a_mistake(tmp_path: Path, wanted: str, reported: str) -> None:
    experiments(tmp_path, "20261120-1000-a-aaaa", "20261120-1000-b-bbbb")
    with pytest.raises(UserError, match="`hpcbench list` shows ") as caught:
        find(tmp_path, wanted)
    assert reported in str(caught.value)


@pytest.mark.parametrize("nothing", ["", " "])
def test_an_unset_variable_of_a_shell_names_no_experiment(tmp_path: Path, nothing: str) -> None:
    experiments(tmp_path, "20261120-1000-a-aaaa")
    with pytest.raises(UserError, match="is empty"):
        find(tmp_path, nothing)


def test_there_is_no_last_of_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no experiment '@last' in .*none yet: `hpcbench submit"):
        find(tmp_path, "@last")


def test_ids_sort_by_time_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({new_id("demo") for _ in range(50)}) == 50
    ids = []
    for stamp in ("20251231-2359", "20260101-0000", "20260101-0001", "20261120-1432"):
        monkeypatch.setattr(time, "strftime", lambda _, stamp=stamp: stamp)
        ids.append(new_id("demo"))
    assert ids == sorted(ids)


BY_ID = datetime(2026, 11, 20, 14, 32).astimezone()  # noqa: DTZ001 - ids have local time
BY_FOLDER = datetime(2001, 9, 9, 1, 46, 40, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("name", "manifest", "created"),
    [
        ("20261120-1432-demo-k3f9", '{"created": "2026-11-19T10:00:00+0200"}',
         datetime(2026, 11, 19, 8, tzinfo=timezone.utc)),
        ("20261120-1432-demo-k3f9", '{"created": ""}', BY_ID),
        ("20261120-1432-demo-k3f9", "{", BY_ID),
        ("20261120-1432-demo-k3f9", "[" * 100_000, BY_ID),
        ("20261120-1432-demo-k3f9", None, BY_ID),
        ("20269999-1432-demo-k3f9", "[]", BY_FOLDER),
        ("by-hand", '{"created": 7}', BY_FOLDER),
    ],
    ids=["as it says", "empty", "torn", "deep", "missing", "no date", "no id"],
)  # fmt: skip
def test_an_experiment_has_a_time_whatever_its_manifest_says(
    tmp_path: Path, name: str, manifest: str | None, created: datetime
) -> None:
    here = Experiment(tmp_path / name)
    here.path.mkdir()
    if manifest is not None:
        here.manifest_file.write_text(manifest)
    os.utime(here.path, (1e9, 1e9))
    assert here.created == created


def test_home_is_the_environments_the_sites_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("HPCBENCH_HOME", raising=False)
    assert home() == Path("/home/me/hpcbench")
    assert home(Site(name="s", home="$HOME/x")) == Path("/home/me/x")
    monkeypatch.setenv("HPCBENCH_HOME", "/lustre/me")
    assert home(Site(name="s", home="/x")) == Path("/lustre/me")


def test_responses_survive_their_json() -> None:
    one = small.response("s", "é", error="x")
    assert type(one).from_json(json.loads(json.dumps(one.to_json()))) == one


def test_in_an_empty_home_the_newest_experiment_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        find(tmp_path, "@last")
    assert "did you mean" not in str(raised.value) and "`hpcbench submit PLAN`" in str(raised.value)
