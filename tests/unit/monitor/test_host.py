"""Process trees, control groups and disks: real ones, and Slurm's layouts as trees of files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.monitor.host import Cgroup, Disk, ProcessTree, Traffic, network
from tests.unit.monitor.conftest import Group, wait_for

MIB = 1 << 20


@pytest.fixture
def family() -> Iterator[subprocess.Popen[str]]:
    """A process with a child, one in a session of its own, and an orphan; it prints their numbers."""
    code = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; x = bytearray(30_000_000); time.sleep(60)"])
apart = subprocess.Popen(["setsid", "sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE)
orphan = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!"], stdout=subprocess.PIPE)
print(child.pid, apart.pid, int(orphan.stdout.readline()), flush=True)
sys.stdin.readline()
orphan.wait()
sum(range(10_000_000))
print("done", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    yield process
    tree = ProcessTree(process.pid)
    tree.look()
    for pid in tree.members:
        os.kill(pid, 9)
    process.communicate()


def test_a_tree_is_all_that_a_process_started_also_what_lost_its_parent(
    family: subprocess.Popen[str],
) -> None:
    assert family.stdin is not None and family.stdout is not None
    child, apart, orphan = map(int, family.stdout.readline().split())
    tree = ProcessTree(family.pid)
    tree.look()
    family.stdin.write("\n")
    family.stdin.flush()
    family.stdout.readline()  # the orphan's parent has ended and been waited for
    tree.look()
    assert {family.pid, child, apart, orphan} <= set(tree.members)
    assert os.getpid() not in tree.members
    assert tree.members[orphan].parent != family.pid
    assert tree.cpu_seconds > 0.05
    wait_for(lambda: tree.look() or tree.rss_bytes > 30 * MIB)
    pss = tree.pss_bytes()
    assert pss is not None and 25 * MIB < pss < tree.rss_bytes


def test_what_has_ended_is_reported_once_and_its_cpu_time_stays(
    family: subprocess.Popen[str],
) -> None:
    assert family.stdout is not None
    child, *_ = map(int, family.stdout.readline().split())
    tree = ProcessTree(family.pid)
    tree.look()
    before = tree.cpu_seconds
    os.kill(child, 9)
    wait_for(lambda: tree.look() or child in tree.ended)
    assert tree.members[child].state == "Z"
    tree.look(search=False)
    assert child not in tree.ended
    os.kill(family.pid, 9)
    family.wait()
    wait_for(lambda: tree.look() or family.pid not in tree.members)
    assert tree.cpu_seconds >= before


def test_processes_that_come_later_are_found_only_by_searching() -> None:
    tree = ProcessTree(os.getpid())
    tree.look()
    late = subprocess.Popen(["sleep", "60"])
    try:
        tree.look(search=False)
        assert late.pid not in tree.members
        tree.look()
        assert tree.members[late.pid].name in ("sleep", Path(sys.executable).name)
        assert tree.find(late.pid) == late.pid
    finally:
        late.kill()
        late.wait()


def test_a_real_group_tells_its_limit_and_what_of_its_memory_cannot_be_dropped(
    group: Group,
) -> None:
    group.limit(256 * MIB)
    code = """
import tempfile, time
held = bytearray(40 << 20)
with tempfile.TemporaryFile(dir='/var/tmp') as file:
    file.write(bytes(30 << 20))
    file.flush()
    time.sleep(60)
"""
    process = group.start(code)
    try:
        cgroup = Cgroup.of(process.pid)
        while cgroup is None or cgroup.path != group.folder:
            time.sleep(0.01)
            cgroup = Cgroup.of(process.pid)

        def settled() -> bool:
            memory = cgroup.read()
            return memory is not None and memory.used > memory.held + 25 * MIB

        wait_for(settled)
        memory = cgroup.read()
    finally:
        process.kill()
        process.wait()
    assert memory is not None and not cgroup.is_job
    assert (memory.limit, memory.kills) == (256 * MIB, 0)
    assert 40 * MIB < memory.held < 60 * MIB, "the file's pages can be dropped"
    assert memory.limited_held == memory.held
    assert memory.used <= (memory.peak or memory.used)


def slurm_v2(proc: Path, mount: Path) -> Path:
    """The layout of Slurm's cgroup/v2 plugin: limits at the job and below."""
    job = mount / "system.slice/slurmstepd.scope/job_7"
    task = job / "step_batch/user/task_0"
    task.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n")
    (proc / "mountinfo").write_text(
        f"30 23 0:26 / {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    for name, text in {
        "memory.current": "9000", "memory.peak": "9500", "memory.max": "10000",
        "memory.stat": "anon 4000\nfile 4500\nshmem 500\nslab_reclaimable 100\n",
        "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n",
    }.items():  # fmt: skip
        (job / name).write_text(text)
    (task / "memory.current").write_text("1")
    return job


def slurm_v1(proc: Path, mount: Path) -> Path:
    """The layout of Slurm's cgroup/v1 plugin, with the other hierarchies beside it."""
    job = mount / "slurm/uid_1000/job_7"
    task = job / "step_0/task_0"
    task.mkdir(parents=True)
    (proc / "cgroup").write_text(
        "9:cpuset:/slurm/uid_1000/job_7/step_0\n4:memory:/slurm/uid_1000/job_7/step_0/task_0\n"
        "1:name=systemd:/system.slice/slurmd.service\n0::/\n"
    )
    (proc / "mountinfo").write_text(
        f"33 31 0:30 / {mount.parent}/cpuset rw - cgroup cgroup rw,cpuset\n"
        f"35 31 0:32 / {mount} rw,relatime - cgroup cgroup rw,memory\n"
        f"41 31 0:38 / {mount.parent}/unified rw - cgroup2 cgroup2 rw\n"
    )
    for name, text in {
        "memory.usage_in_bytes": "9000", "memory.max_usage_in_bytes": "9500",
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.stat": "cache 1\ntotal_cache 4500\ntotal_rss 4000\ntotal_shmem 500\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }.items():  # fmt: skip
        (job / name).write_text(text)
    (mount / "slurm/uid_1000/memory.limit_in_bytes").write_text("10000")
    (mount / "slurm/uid_1000/memory.usage_in_bytes").write_text("9700")
    (mount / "slurm/uid_1000/memory.stat").write_text("total_cache 0\n")
    return job


def test_in_a_slurm_job_its_whole_group_is_read_with_version_2(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    job = slurm_v2(tmp_path / "proc/7", tmp_path / "cgroup")
    found = Cgroup.of(7, tmp_path / "proc")
    assert found is not None and (found.path, found.is_job) == (job, True)
    memory = found.read()
    assert memory is not None
    assert (memory.used, memory.peak, memory.limit, memory.kills) == (9000, 9500, 10_000, 2)
    assert memory.held == memory.limited_held == 9000 - (4500 - 500) - 100


def test_in_a_slurm_job_its_whole_group_is_read_with_version_1(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    job = slurm_v1(tmp_path / "proc/7", tmp_path / "memory")
    found = Cgroup.of(7, tmp_path / "proc")
    assert found is not None and (found.path, found.is_job) == (job, True)
    memory = found.read()
    assert memory is not None
    assert (memory.used, memory.peak, memory.held, memory.kills) == (9000, 9500, 5000, 2)
    assert (memory.limit, memory.limited_held) == (10_000, 9700), "the limit stands above the job"


def test_in_a_container_only_a_part_of_the_hierarchy_is_mounted(tmp_path: Path) -> None:
    proc, mount = tmp_path / "proc/7", tmp_path / "cgroup"
    for folder in (proc, mount):
        folder.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/docker/abc\n")
    (proc / "mountinfo").write_text(f"30 23 0:26 /docker/abc {mount} ro - cgroup2 cgroup rw\n")
    (mount / "memory.current").write_text("5")
    (mount / "memory.max").write_text("max")
    found = Cgroup.of(7, tmp_path / "proc")
    assert found is not None and found.path == mount
    memory = found.read()
    assert memory is not None and (memory.used, memory.limit, memory.peak) == (5, None, None)


def test_without_a_memory_controller_there_is_no_group(tmp_path: Path) -> None:
    proc = tmp_path / "proc/7"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/\n")
    (proc / "mountinfo").write_text(f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert Cgroup.of(7, tmp_path / "proc") is None
    assert Cgroup.of(8, tmp_path / "proc") is None


def test_a_disks_room_is_what_an_ordinary_user_has_of_it(tmp_path: Path) -> None:
    disk = Disk.of(tmp_path)
    assert disk is not None and 0 <= disk.free <= disk.size
    assert Disk.of(tmp_path / "gone") is None


def test_traffic_is_that_of_ip_and_of_infinibands_ports_without_the_loop(tmp_path: Path) -> None:
    counters = {
        "net/eth0/statistics": {"rx_bytes": "100\n", "tx_bytes": "20\n"},
        "net/lo/statistics": {"rx_bytes": "7\n", "tx_bytes": "7\n"},
        "net/ib0/statistics": {"rx_bytes": "", "tx_bytes": "1\n"},
        "infiniband/mlx5_0/ports/1/counters": {"port_rcv_data": "25\n", "port_xmit_data": "5\n"},
    }
    for folder, files in counters.items():
        (tmp_path / folder).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    assert network(tmp_path) == {"eth0": Traffic(100, 20), "mlx5_0/1": Traffic(100, 20)}
    assert all(one.received >= 0 for one in network().values())
