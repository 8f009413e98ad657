"""Runners of rented machines as a worker starts them, and what their tests need of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from hpcbench.environments.rented import Rented
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite
from tests.cluster.packages import install_packages
from tests.cluster.system import LabError
from tests.conftest import ROOT, unavailable

IMAGE = f"docker://registry.example/engine@sha256:{'a' * 64}"


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    wanted = {"sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync"}
    missing = [
        package
        for program, package in wanted.items()
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    ]
    if missing:
        try:
            install_packages(missing)
        except LabError as error:
            unavailable(f"no {', '.join(missing)} on this machine: {error}")
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False)
    if done.returncode:
        unavailable("no namespaces for pods here: the fake needs root")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that they are made once."""
    return tmp_path_factory.mktemp("packages")


@pytest.fixture
def cache(tmp_path: Path, packages: Path) -> Path:
    """One for each test: what pods have cost is kept there."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "packages").symlink_to(packages)
    return folder


@dataclass
class Runner:
    """A runner, started as a worker starts it."""

    process: subprocess.Popen[bytes]
    private: Path
    log: Path

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while text not in self.said():
            assert self.process.poll() is None or text in self.said(), self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)

    def end(self, seconds: float = 60) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running: {self.said()}")

    def guard(self) -> int:
        """PID of the process that watches over its pod."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in children.split():
            if b"rented_guard" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError(f"no guard: {self.said()}")


@dataclass
class Rig:
    """The account, image and network that start runners; a provider adds `kind`, `manager`, `given`."""

    kind: ClassVar[str]
    manager: ClassVar[type[Any]]
    fake: Any
    cache: Path
    folder: Path
    started: list[Runner]

    def given(self) -> dict[str, Any]:
        """Options of the site."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """Machines that exist."""
        raise NotImplementedError

    def site(self, **options: Any) -> ContainerSite:
        return ContainerSite(manager=self.kind, options={**self.given(), **options})

    def rented(self) -> Rented:
        """Record of the pod that was rented last, once its price is known."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(ValueError, FileNotFoundError):
                known = [
                    Rented.model_validate_json(file.read_text())
                    for file in (self.cache / self.kind).glob("hpcbench-*.json")
                ]
                newest = max(known, key=lambda one: one.begun)
                if newest.deadline is not None and newest.ended is None:
                    return newest
            time.sleep(0.05)
        raise AssertionError(self.started[-1].said())

    def prepare(self, say: Callable[[str], None] = print, **options: Any) -> Environment:
        made: Environment = self.manager().prepare(IMAGE, self.cache, self.site(**options), (), say)
        return made

    def start(
        self,
        *argv: str,
        mounts: tuple[str, ...] = (),
        gpus: int = 0,
        env: Any = None,
        environment: Environment | None = None,
        **options: Any,
    ) -> Runner:
        private = self.folder / f"private-{len(self.started)}"
        private.mkdir()
        command = self.manager().wrap(
            environment or self.prepare(**options),
            argv,
            [str(private), *mounts],
            env or {},
            gpus,
            self.site(**options),
        )
        log = self.folder / f"{private.name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        runner = Runner(process, private, log)
        self.started.append(runner)
        return runner

    def end(self) -> None:
        """End the runners that are left."""
        for runner in self.started:
            if runner.process.poll() is None:
                os.kill(runner.process.pid, signal.SIGKILL)
            runner.process.communicate()

    def write_plan(self, model: str, site: Mapping[str, Any], **run_task: Any) -> list[str]:
        """A plan of eight samples whose engine runs in a rented machine: the command that submits it.

        The fake's image has the Python of the tests, and so the Hugging Face engine.
        """
        definition = yaml.safe_load((ROOT / "registries/models/tiny-vlm.yaml").read_text())
        definition |= {"name": model, "image": IMAGE, "source": str(ROOT / "examples/demo/model")}
        files = {
            f"registry/models/{model}.yaml": definition,
            "config/hpcbench/sites/default.yaml": {
                "schema_version": 1, "name": "default", "executor": "local", **site,
            },
            "plan.yaml": {
                "schema_version": 1, "name": "rented",
                "run_tasks": [{
                    "name": "vqa", "ml_task": "vqa", "model": model, "dataset": "demo_vqa", "split": "easy",
                    "prompt": "demo_vqa", "generation": {"max_tokens": 24}, "sample": {"size": 8}, **run_task,
                }],
            },
        }  # fmt: skip
        for name, content in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(yaml.safe_dump(content))
        program = str(Path(sys.executable).with_name("hpcbench"))
        registry = str(self.folder / "registry")
        return [program, "submit", "plan.yaml", "--registry", registry, "--wait", "--json"]


@pytest.fixture
def gone(rig: Rig) -> Callable[[float], None]:
    """Waits until no machine is left."""

    def wait(seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while rig.left():
            assert time.monotonic() < until, rig.fake.calls[-5:]
            time.sleep(0.05)

    return wait
