"""From a laptop: no Slurm there, a login node behind a real sshd, the real cluster behind that.

The laptop is root of this machine with a home of its own, which the cluster's user cannot look into; the
login node's sshd runs as that user.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.remote.cutter import Cutter
from tests.remote.ssh_home import path_with_ssh
from tests.remote.sshd import Sshd
from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]


class Laptop:
    """A user's own machine."""

    def __init__(self, home: Path, user: User) -> None:
        self.home, self.user = home, user
        passed = ("LANG", "SSL_CERT_FILE", "OPENBLAS_CORETYPE")
        self.environment = {name: os.environ[name] for name in passed if name in os.environ} | {
            "HOME": str(home),
            "PATH": path_with_ssh(home),
            "HPCBENCH_HOME": str(home / "hpcbench"),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        shutil.copytree(user.share / "examples/demo/data", home / "data")
        shown = yaml.safe_load(
            (user.share / "registries/datasets/demo_vqa.yaml").read_text(encoding="utf-8")
        )
        self.write(
            "registries/datasets/mine.yaml", {**shown, "name": "mine", "source": "../../data"}
        )
        model = yaml.safe_load((user.registry / "models/tiny-vlm.yaml").read_text())
        self.write("registries/models/tiny-vlm.yaml", model)

    def write(self, name: str, data: dict[str, Any]) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return path

    def plan(self, name: str, limit: int) -> Path:
        task = {
            "name": "vqa", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "mine", "split": "easy",
            "prompt": "demo_vqa", "limit": limit, "generation": {"max_tokens": 96},
            "resources": {"cpus": 1, "memory_gb": 2, "time_limit": "00:20:00"},
        }  # fmt: skip
        data = {"schema_version": 1, "name": name, "run_tasks": [task], "shard_size": 4}
        return self.write(f"{name}.yaml", data)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "hpcbench.cli.main", *map(str, words)],
            cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str | Path, code: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=900)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}"
        return out, err


@pytest.fixture
def login_node(slurm_user: User) -> Iterator[Sshd]:
    """The login node: an sshd of the cluster's user."""
    user = slurm_user
    server = Sshd.make(user.folder / "sshd", user.lab.user_argv([]))
    command = server.folder / "hpcbench"
    variables = {**user.lab.env(), **user.environment}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    program = shlex.quote(str(user.argv()[0]))
    command.write_text(f'#!/bin/sh\n{exports}exec {program} "$@"\n')
    command.chmod(0o755)
    subprocess.run(["chown", "-R", "hpcuser:", str(server.folder)], check=True)
    with server:
        yield server


@pytest.fixture
def laptop(tmp_path: Path, slurm_user: User, login_node: Sshd) -> Laptop:
    tmp_path.chmod(0o700)
    made = Laptop(tmp_path / "laptop", slurm_user)
    shutil.copy(login_node.folder / "user", made.home / ".ssh/id_ed25519")
    (made.home / ".ssh/known_hosts").write_text(login_node.known)
    made.run(
        "init", "--site", "lab", "--ssh", f"hpcuser@127.0.0.1:{login_node.port}",
        "--set", f"ssh.hpcbench={login_node.folder}/hpcbench",
    )  # fmt: skip
    return made


def test_a_laptops_plan_runs_on_the_cluster_and_its_report_comes_back(
    laptop: Laptop, slurm_user: User, login_node: Sshd, tmp_path: Path
) -> None:
    user = slurm_user
    plan = laptop.plan("far", 8)
    with Sshd.make(tmp_path / "gate") as gate:
        with (laptop.home / ".ssh/known_hosts").open("a") as known:
            known.write(gate.known)
        shutil.copy(gate.folder / "user", laptop.home / ".ssh/gate")
        (laptop.home / ".ssh/config").write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User root\n"
            f"  IdentityFile {laptop.home}/.ssh/gate\nHost 127.0.0.1\n  ProxyJump gate\n"
        )
        out, err = laptop.run("submit", plan, "--site", "lab", "--wait")
        assert "Accepted publickey" in gate.log
        (laptop.home / ".ssh/config").unlink()

    assert f"{user.share}/examples/demo/model: using the one on 127.0.0.1" in err
    assert re.search(r"sent [1-9][\d.]* [KMi]*B of", err)
    (experiment,) = user.json("list")
    assert experiment["state"] == "done"
    assert re.search(r"vqa +anls", out)
    here = Path(re.findall(r"report on this machine: (\S+)", err)[0])
    assert laptop.home in here.parents
    there = user.experiment(experiment["id"]) / "report"
    for path in there.rglob("*"):
        if path.is_file():
            assert (here / path.relative_to(there)).read_bytes() == path.read_bytes()

    _, err = laptop.run("submit", plan, "--site", "lab", "--dry-run")
    assert "sent 0 bytes" in err
    manifest = json.loads((user.experiment(experiment["id"]) / "manifest.json").read_text())
    assert manifest["plan_key"] == _key_as_submitted_there(user)
    reported, _ = laptop.run("report", experiment["id"], "--json", "--site", "lab")
    assert json.loads(reported)["run_tasks"]
    assert laptop.run("status", "none", "--site", "lab", code=2)


@pytest.mark.campaign  # tests/remote cuts connections
def test_following_survives_a_connection_that_is_cut(
    laptop: Laptop, slurm_user: User, login_node: Sshd, cutter: Cutter
) -> None:
    cutter.to = login_node.port
    profile = laptop.home / "config/hpcbench/sites/lab.yaml"
    data = yaml.safe_load(profile.read_text())
    data["ssh"]["port"] = cutter.port
    profile.write_text(yaml.safe_dump(data))
    with (laptop.home / ".ssh/known_hosts").open("a") as known:
        known.write(login_node.known_as(cutter.port))

    running = laptop.start("submit", laptop.plan("cut", 12), "--site", "lab", "--wait")
    until(lambda: bool(slurm_user.json("list")), 200, "the submission")
    cutter.cut_after = 6_000  # of the connections that are made from now on
    login_node.drop_sessions()
    threading.Thread(target=_heal_after, args=(cutter, 2), daemon=True).start()

    out, err = running.communicate(timeout=900)
    assert running.returncode == 0, out + err
    assert "the connection broke; trying again" in err
    assert [row["state"] for row in slurm_user.json("list")] == ["done"]
    assert "report on this machine: " in err


@pytest.fixture
def cutter() -> Iterator[Cutter]:
    with Cutter() as made:
        yield made


def _heal_after(cutter: Cutter, cuts: int) -> None:
    deadline = time.monotonic() + 60
    while cutter.cuts < cuts and time.monotonic() < deadline:
        time.sleep(0.05)
    cutter.cut_after = None


def _key_as_submitted_there(user: User) -> str:
    """The same plan, as it lies on the cluster, submitted by hand and cancelled at once."""
    (plan,) = (user.home / "remote").glob("*/far.yaml")
    registries = [
        word for path in sorted(plan.parent.glob("registry-*")) for word in ("--registry", path)
    ]
    answer = user.json("submit", plan, *registries)
    user.ok("cancel", answer["id"])
    manifest = json.loads((user.experiment(answer["id"]) / "manifest.json").read_text())
    return str(manifest["plan_key"])
