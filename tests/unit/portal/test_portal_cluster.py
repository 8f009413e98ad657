"""The cluster's page against a FAKE Slurm: what it shows, how seldom it asks, what a silent one leaves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.portal import cluster_watch, quotas
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.cluster_watch import Watch
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.models.cluster import Cluster
from hpcbench.portal.models.live import ClusterNews
from hpcbench.slurm.nodes import expand_nodes, parse_nodes
from tests.unit.slurm.fake_slurm import Fake, fake_slurm

NODES = "\n".join(
    " ".join(words)
    for words in (
        ("NodeName=gpu01 CPUAlloc=8 CPUTot=64 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:3(IDX:0-2)",
         "State=MIXED Partitions=gpu,long"),
        ("NodeName=gpu02 CPUAlloc=0 CPUTot=64 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:0(IDX:N/A)",
         "State=IDLE+DRAIN Partitions=gpu Reason=bad fan [root@2026-11-01T10:00:00]"),
        ("NodeName=old01 CPUAlloc=2 CPUTot=16 Gres=gpu:v100:2,gpu:t4:1",
         "GresUsed=gpu:v100:1(IDX:0),gpu:t4:1(IDX:2) State=MIXED Partitions=long"),
        ("NodeName=cpu01 CPUAlloc=0 CPUTot=128 Gres=(null) GresUsed= State=IDLE Partitions=cpu",),
        ("PartitionName=gpu Default=YES MaxTime=1-00:00:00 State=UP TotalNodes=2",),
        ("PartitionName=long Default=NO MaxTime=UNLIMITED State=DOWN TotalNodes=2",),
        ("PartitionName=cpu Default=NO MaxTime=08:00:00 State=UP TotalNodes=1",),
    )
)  # fmt: skip
"""Answer of this fake's scontrol, whatever it is asked."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A FAKE Slurm on PATH, with nodes."""
    found = fake_slurm(tmp_path / "fake", monkeypatch)
    found.says("scontrol", NODES)
    (tmp_path / "fake" / "sbatch").touch(mode=0o755)
    return found


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch over an empty home that shares its answers with no other."""
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    monkeypatch.delenv("SCRATCH", raising=False)
    (tmp_path / "shared").mkdir(mode=0o700)
    index: Any = SimpleNamespace(experiments=lambda query: SimpleNamespace(items=()))
    portal = Portal(tmp_path, Options(tmp_path), index, Hub())
    return Watch(portal, folder=tmp_path / "shared")


def once(watch: Watch, good: Callable[[Cluster], bool] = lambda word: not word.asking) -> Cluster:
    """The word once it is as wanted."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        word = watch.word()
        if good(word):
            return word
        time.sleep(0.02)
    raise AssertionError(f"it never came: {watch.word()}")


def test_partitions_tell_gpus_by_type_free_held_and_on_drained_nodes(
    fake: Fake, watch: Watch
) -> None:
    word = once(watch)
    gpu, long, cpu = word.partitions
    assert (gpu.name, gpu.default, gpu.up, gpu.time_limit) == ("gpu", True, True, "1-00:00:00")
    assert gpu.gpus == {"a100": 8}
    assert gpu.free_gpus == {"a100": 1}
    assert gpu.down_gpus == {"a100": 4}
    assert long.gpus == {"a100": 4, "v100": 2, "t4": 1}
    assert long.free_gpus == {"a100": 1, "v100": 1, "t4": 0}
    assert not long.up
    assert (cpu.gpus, cpu.idle) == ({}, 1)


def test_nodes_tell_state_gpus_and_own_jobs(fake: Fake, watch: Watch) -> None:
    fake.job("7", NodeList="gpu[01-02]")
    nodes = {node.name: node for node in once(watch).nodes}
    assert (nodes["gpu01"].gpus, nodes["gpu01"].gpus_used, nodes["gpu01"].mine) == (4, 3, 1)
    assert (nodes["gpu02"].up, nodes["gpu02"].why) == (False, "bad fan")
    assert nodes["old01"].gpu_type == "v100, t4"
    assert nodes["cpu01"].gpus == 0


def test_own_jobs_come_with_their_experiment_and_why_they_wait(
    fake: Fake, watch: Watch, tmp_path: Path
) -> None:
    (tmp_path / "experiments" / "20261122-a").mkdir(parents=True)
    fake.job(
        "9_[0-3]", state="PENDING", Reason="QOSMaxGRESPerUser", Comment="hpcbench:20261122-a:g0:1"
    )
    fake.job("8", state="RUNNING", NodeList="gpu01", Comment="hpcbench:../../etc:g0:1")
    fake.job("7", state="COMPLETED")
    running, waiting = once(watch).jobs
    assert (running.id, running.experiment) == ("8", None)
    assert (waiting.id, waiting.tasks, waiting.experiment) == ("9", 4, "20261122-a")
    assert waiting.why.startswith("the QOS's limit of GPUs per user is reached")


def test_many_readers_cost_one_question_and_all_get_the_answer(fake: Fake, watch: Watch) -> None:
    hub = watch._portal.hub
    before = hub.seq
    once(watch)
    for _ in range(20):
        watch.word()
    assert len(fake.calls("squeue")) == 1
    assert "--me" in fake.calls("squeue")[0]
    assert fake.calls("scontrol") == [
        "--oneliner --details show nodes", "--oneliner show partition"
    ]  # fmt: skip
    (news,) = hub.since(before).news
    assert isinstance(news, ClusterNews)


def test_a_reader_does_not_wait_for_a_slow_slurm(
    fake: Fake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "FIRST_WAIT", 0.05)
    fake.holds("squeue")
    word = watch.word()
    assert (word.available, word.asking, word.asked, word.partitions) == (True, True, None, ())
    fake.lets_go("squeue")
    assert once(watch).asked is not None


def test_a_silent_slurm_leaves_the_older_word_and_says_why(
    fake: Fake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.job("8", state="RUNNING", NodeList="gpu01")
    first = once(watch)
    monkeypatch.setattr(cluster_watch, "MAX_AGE", 0.0)
    for program in ("squeue", "scontrol"):
        fake.fails(program, "slurm_load_jobs error: Unable to contact slurm controller")
    word = once(watch, lambda one: one.fault is not None)
    assert "Unable to contact slurm controller" in str(word.fault)
    assert (word.asked, word.jobs, word.nodes) == (first.asked, first.jobs, first.nodes)


def test_without_slurm_there_is_a_story_all_the_same(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    word = once(watch)
    assert (word.available, word.fault, word.jobs) == (False, None, ())
    assert [room.name for room in word.room][:1] == ["experiments"]
    assert all(0 <= room.used <= room.size for room in word.room)


def test_node_lists_are_written_out() -> None:
    assert expand_nodes("gpu[01-03,7]-ib,login") == [
        "gpu01-ib", "gpu02-ib", "gpu03-ib", "gpu7-ib", "login"
    ]  # fmt: skip
    assert len(expand_nodes("n[1-999999999]")) == 4096
    assert expand_nodes("[") == expand_nodes("") == []


def test_states_that_keep_jobs_away() -> None:
    states = (
        "IDLE", "MIXED+CLOUD", "ALLOCATED", "DOWN*", "IDLE*", "IDLE+DRAIN", "IDLE+MAINTENANCE",
        "IDLE+POWERED_DOWN",
    )  # fmt: skip
    text = "".join(f"NodeName=n State={state} CPUTot=1\n" for state in states)
    assert [node.up for node in parse_nodes(text)] == [
        True, True, True, False, False, False, False, False
    ]  # fmt: skip


def test_a_file_system_that_hangs_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held, over = threading.Event(), threading.Event()

    def hang(path: Path) -> None:
        held.wait(30)
        over.set()
        raise OSError

    monkeypatch.setattr(quotas, "PATIENCE", 0.05)
    monkeypatch.setattr(os, "statvfs", hang)
    assert quotas.disk_usages({"home": tmp_path}) == ()
    held.set()
    assert over.wait(30)


def test_a_link_to_lustre_shows_the_quota_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = tmp_path / "far away", tmp_path / "scratch"
    far.mkdir()
    near.symlink_to(far)
    mounts, lfs = tmp_path / "mounts", tmp_path / "lfs"
    place = str(far).replace(" ", "\\040")
    mounts.write_text(f"22 1 0:1 / / rw - ext4 x rw\n40 22 0:9 / {place} rw - lustre x rw\n")
    lfs.write_text('#!/bin/sh\necho "$5 1024 0 4096 - 3 0 0 -"\n')
    lfs.chmod(0o755)
    monkeypatch.setattr("hpcbench.files.mounts.MOUNTS", mounts)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    quota = quotas.disk_usages({"scratch": near})[1]
    assert (quota.name, quota.used, quota.size) == ("scratch", 1 << 20, 4 << 20)
