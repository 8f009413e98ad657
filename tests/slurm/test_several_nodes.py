"""One engine on two nodes of the real cluster: the scripted engine, with a process on each node."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.system import environ
from tests.slurm.drill import Drill, Run, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ENDED_WITHIN = 20.0
"""Seconds after which nothing of a broken engine may be left on any node."""


def ranks(run: Run) -> dict[int, int]:
    """Rank → process of the engine."""
    found = {}
    for pid in run.engines():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if "--rank" in words:
            found[int(words[words.index("--rank") + 1])] = pid
    return found


def over_two_nodes(drill: Drill, **fields: object) -> Run:
    """Submit the drill's plan for one worker whose engine has two nodes."""
    drill.model("scripted", nodes=2, parallel={"pipeline": 2}, stall_timeout=60, **fields)
    drill.script(answer_ms=[150, 150])
    return drill.submit(drill.plan(parallelism=1, shard_size=10))


def at_work(run: Run) -> dict[int, int]:
    """Wait for answers of an engine with both ranks; its processes."""
    until(lambda: run.answered() > 4, "answers")
    return until(lambda: len(found := ranks(run)) == 2 and found, "both ranks")


def test_a_rank_that_dies_ends_its_engine_on_both_nodes_and_is_named(
    drill: Drill, calm: Run
) -> None:
    run = over_two_nodes(drill)
    before_death = at_work(run)
    (worker,) = run.workers_at()
    _, second = drill.slurm("scontrol", "show", "hostnames", worker.node).split()
    before = run.answers()

    os.kill(before_death[1], signal.SIGKILL)

    ended(before_death)
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm, [before])
    (died,) = run.said("engine_died")
    assert died["message"].startswith(f"rank 1 on {second}: engine was ended by SIGKILL")
    assert not run.engines()
    logs = sorted(path.name.split(".", 2)[-1] for path in run.path.glob("workers/*.log"))
    assert len(logs) == 2 and logs[-1].endswith("rank1.log")


def alive(processes: dict[int, int]) -> list[int]:
    return [pid for pid in processes.values() if Path(f"/proc/{pid}/cmdline").exists()]


def ended(processes: dict[int, int], within: float = ENDED_WITHIN) -> float:
    """Seconds until none of the processes is left, which are no more than `within`."""
    since = time.monotonic()
    until(lambda: not alive(processes), "all ranks to end", within)
    took = time.monotonic() - since
    assert took <= within, f"all ranks had ended after {took:.1f} s"
    return took


def given_up(lab: Lab, node: str, processes: dict[int, int]) -> float:
    """Seconds until Slurm has given up a node without slurmd; the processes live until then."""
    since = time.monotonic()
    until(lambda: lab.is_down(node) or not alive(processes), f"Slurm to give {node} up")
    return time.monotonic() - since


def _kill_first(drill: Drill, run: Run, found: dict[int, int]) -> None:
    os.kill(found[0], signal.SIGKILL)


def _stop_first(drill: Drill, run: Run, found: dict[int, int]) -> None:
    os.kill(found[0], signal.SIGSTOP)


def _stop_further(drill: Drill, run: Run, found: dict[int, int]) -> None:
    os.kill(found[1], signal.SIGSTOP)


def _stop_step(drill: Drill, run: Run, found: dict[int, int]) -> None:
    (step,) = [pid for pid in run.pids("hpcbench.worker.rank") if _is_python(pid)]
    os.kill(step, signal.SIGSTOP)


def _kill_step(drill: Drill, run: Run, found: dict[int, int]) -> None:
    (step,) = [pid for pid in run.pids("hpcbench.worker.rank") if _is_python(pid)]
    os.kill(step, signal.SIGKILL)


def _is_python(pid: int) -> bool:
    return not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"srun")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (_kill_first, "rank 0 on n1: engine was ended by SIGKILL"),
        (_stop_first, "rank 0 on n1: a process of the engine was stopped"),
        (_stop_further, "rank 1 on n2: a process of the engine was stopped"),
        (_stop_step, "rank 1 on n2: its node was silent"),
        (_kill_step, "rank 1 on n2: its job step ended"),
    ],
)
def test_faults_of_one_rank_end_all(
    drill: Drill, calm: Run, fault: Callable[[Drill, Run, dict[int, int]], None], named: str
) -> None:
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()
    drill.script(answer_ms=[600, 600])  # it must not be through before a silent node is noticed

    fault(drill, run, found)

    took = ended(found)
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm, [before])
    (died,) = run.said("engine_died")
    assert died["message"].startswith(named)
    assert not run.engines() and not run.pids("hpcbench.worker.rank")
    print(f"{fault.__name__}: ended after {took:.1f} s")


@pytest.mark.campaign
def test_a_late_rank_is_waited_for(drill: Drill, calm: Run) -> None:
    drill.model("scripted", nodes=2, parallel={"tensor": 2})
    drill.script(answer_ms=[1, 3], late_rank_ms=6000)
    run = drill.submit(drill.plan(parallelism=1, shard_size=10))
    run.wait()
    whole(run, calm)
    (ready,) = run.said("model_ready")
    assert ready["seconds"] >= 6


@pytest.mark.campaign
def test_a_port_that_another_program_takes_is_replaced(drill: Drill, calm: Run) -> None:
    drill.model("scripted", nodes=2, parallel={"tensor": 2})
    drill.script(answer_ms=[1, 3], ports_taken=2)
    run = drill.submit(drill.plan(parallelism=1, shard_size=10))
    run.wait()
    whole(run, calm)
    assert not run.said("model_failed")
    assert len([one for one in run.said("loading") if "another port" in one["message"]]) == 2


@pytest.mark.campaign
def test_a_rank_that_does_not_load_is_named_and_counts_as_one_try(drill: Drill) -> None:
    drill.model("scripted", nodes=2, parallel={"tensor": 2})
    drill.script(answer_ms=[1, 3], lost_ranks=99)
    run = drill.submit(drill.plan(parallelism=1, shard_size=10))
    run.wait("failed", "incomplete")
    for failed in run.said("model_failed"):
        assert "rank 1 on n2: engine ended with exit code 1" in failed["message"]
        assert "this rank does not load" in failed["message"]
    assert not run.engines()


@pytest.mark.campaign
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_node_that_dies_ends_the_other_rank_and_gives_its_work_to_a_later_run(
    drill: Drill, calm: Run, node: str
) -> None:
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()

    with drill.lab.without_node(node):
        ended(found)
        drill.script(answer_ms=[1, 3])
        run.wait()

    whole(run, calm, [before])
    assert not run.engines()


@pytest.mark.campaign
def test_a_killed_slurmd_ends_the_job_as_one_unit_once_slurm_has_given_its_node_up(
    drill: Drill, calm: Run
) -> None:
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()

    with drill.lab.without_slurmd("n2"):
        given_up(drill.lab, "n2", found)
        ended(found)
        drill.script(answer_ms=[1, 3])
        run.wait()

    whole(run, calm, [before])
    assert not run.engines()


@pytest.mark.campaign
def test_a_requeued_job_drains_and_starts_all_its_ranks_again(drill: Drill, calm: Run) -> None:
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()
    (worker,) = run.workers_at()

    drill.slurm("scontrol", "requeue", worker.id)

    ended(found)
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm, [before])
    assert not run.engines() and not run.said("engine_died")


@pytest.mark.campaign
def test_a_killed_worker_leaves_nothing_on_the_other_node(drill: Drill, calm: Run) -> None:
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()
    (worker,) = run.workers()

    os.kill(worker, signal.SIGKILL)

    ended(found)
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm, [before])
    assert not run.engines()


@pytest.mark.campaign
def test_a_node_that_does_not_join_is_named_and_left_out(drill: Drill, calm: Run) -> None:
    failing = (
        '[[ $* == *--nodelist=n2* ]] && { echo "srun: error: launch failed on n2" >&2; exit 1; }'
    )
    path = drill.shim("srun", f'{failing}\nPATH=${{PATH#*:}} exec srun "$@"\n')
    drill.at_site(setup=[f"export PATH={path}"])
    run = over_two_nodes(drill)
    run.wait()
    whole(run, calm)
    (bad,) = run.said("bad_node")
    assert bad["node"] == "n2"
    assert bad["message"].startswith("rank 1 on n2: its job step did not start"), bad["message"]
    (ready,) = run.said("model_ready")
    assert len(ready["nodes"]) == 2 and "n2" not in ready["nodes"]


@pytest.mark.campaign
def test_a_preempted_job_drains_and_goes_on_with_all_its_ranks(drill: Drill, calm: Run) -> None:
    drill.at_site(partition="low")
    run = over_two_nodes(drill)
    found, before = at_work(run), run.answers()

    urgent = drill.slurm(
        "sbatch", "--parsable", "--partition=high", "--nodelist=n2", "--exclusive",
        "--job-name=urgent", "--output=/dev/null", "--time=1", "--wrap=sleep 300",
    ).strip()  # fmt: skip
    try:
        until(lambda: run.said("stopped"), "its worker to drain", timeout=120)
        ended(found)
        drill.script(answer_ms=[1, 3])
    finally:
        drill.slurm("scancel", urgent)
    run.wait()
    whole(run, calm, [before])
    assert run.rounds == 1
    assert not run.engines() and not run.said("engine_died")


@pytest.mark.campaign  # three minutes: Slurm knows no shorter limit
def test_a_job_at_its_time_limit_drains_with_all_its_ranks(drill: Drill, calm: Run) -> None:
    drill.at_site(drain_seconds=10)
    drill.model("scripted", nodes=2, parallel={"tensor": 2})
    drill.script(answer_ms=[4000, 4000])
    short = {"cpus": 1, "memory_gb": 1, "time_limit": "00:02:00"}
    run = drill.submit(drill.plan({"resources": short}, parallelism=1, shard_size=40))
    found = until(lambda: len(both := ranks(run)) == 2 and both, "both ranks")

    until(lambda: run.said("stopped"), "its worker to be warned", timeout=150)
    ended(found)
    before = run.answers()
    assert 0 < len(before) < 40
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm, [before])
    assert {one["signal"] for one in run.said("draining")} == {"SIGUSR2"}
    assert not run.engines() and not run.said("engine_died")


@pytest.mark.campaign
def test_all_ranks_run_in_one_image_with_the_sites_settings_of_its_network(
    drill: Drill, calm: Run, image: str
) -> None:
    # The engine reads its script in the user's folder.
    container = {"insecure_registries": ["localhost:5000"], "binds": [str(drill.folder)]}
    drill.at_site(setup=["export NCCL_IB_HCA=mlx5_0"], container=container)
    run = over_two_nodes(drill, image=image)
    found = at_work(run)
    images = {environ(pid).get("APPTAINER_CONTAINER") for pid in found.values()}
    assert {environ(pid).get("NCCL_IB_HCA") for pid in found.values()} == {"mlx5_0"}
    drill.script(answer_ms=[1, 3])
    run.wait()
    whole(run, calm)
    (sif,) = images
    assert sif is not None and sif.endswith(".sif")
