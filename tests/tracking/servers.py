"""Real servers of trackers, each in an environment of its own, on loopback, for as long as the tests run.

The environments stay on the machine, in `/var/tmp/hpcbench-servers`: to make one takes half a minute.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.conftest import unavailable
from tests.remote.sshd import free_port

PLACE = Path("/var/tmp/hpcbench-servers")

MLFLOW, PHOENIX = "mlflow==3.17.2", "arize-phoenix==20.26.1"

START_SECONDS = 400.0
"""Longest wait for a server: both import for long on a busy machine."""


def installed(requirement: str) -> Path:
    """Folder of programs of an environment with this package; made by one process, once a machine."""
    PLACE.mkdir(parents=True, exist_ok=True)
    folder = PLACE / requirement.replace("==", "-")
    with (PLACE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            uv = [str(Path(sys.executable).with_name("uv")), "-q"]
            made = subprocess.run([*uv, "venv", "--clear", "-p", sys.executable, str(folder)])
            pip = [*uv, "pip", "install", "-p", str(folder / "bin/python"), requirement]
            if made.returncode or subprocess.run(pip).returncode:
                unavailable(f"{requirement} cannot be installed")
            (folder / "done").touch()
    return folder / "bin"


class Server:
    """A server that can be killed and come back at the same place."""

    def __init__(
        self, argv: list[str], port: int, health: str, log: Path, env: Mapping[str, str]
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._argv, self._health, self._log, self._env = argv, health, log, env
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait` waits until it answers."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env={**os.environ, **self._env}, start_new_session=True,
            )  # fmt: skip
        # Whatever becomes of the tests, the server ends too: then no process holds this pipe's other end.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'read _; kill -9 -- "-$1"', "guard", str(self._process.pid)],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended: {self._log.read_text()[-2000:]}")
            try:
                with direct.open(f"{self.url}{self._health}", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise AssertionError(f"the server does not answer: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """kill -9 of it and of all that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._guard is not None
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._process = None


def running(server: Server) -> Iterator[Server]:
    """The server, answering; killed afterwards."""
    try:
        server.start()
        server.wait()
        yield server
    finally:
        server.kill()


def mlflow(folder: Path) -> Server:
    """MLflow on SQLite in this folder."""
    port = free_port()
    argv = [
        str(installed(MLFLOW) / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artefacts"),
    ]  # fmt: skip
    env = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Server(argv, port, "/health", folder / "mlflow.log", env)


def phoenix(folder: Path) -> Server:
    """Phoenix on SQLite in this folder."""
    port = free_port()
    env = {
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    argv = [str(installed(PHOENIX) / "phoenix"), "serve"]
    return Server(argv, port, "/healthz", folder / "phoenix.log", env)


def closed_port() -> int:
    """A port of this machine where no server listens, now or later."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
