"""Real servers on loopback: S3, SSH and HTTP, each a child process that ends with the tests.

S3 is `rclone serve s3`: an implementation that is not Amazon's and not ours, which keeps objects as files.
The Hugging Face hub cannot be reached from here, so there is only a fake of it: `hub.py`, after the
published API.
"""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.remote.cutter import Cutter
from tests.remote.sshd import Sshd, free_port

KEY, SECRET = "AKIATEST", "s3cr3t-of-the-tests"


S3_SEES_AFTER = 1.0
"""Seconds after which the S3 server sees files that a test wrote behind its back."""


def settle() -> None:
    """Let the S3 server see what was written behind its back."""
    time.sleep(1.2 * S3_SEES_AFTER)


@dataclass(frozen=True)
class Server:
    """Where a server is, and the folder it serves."""

    url: str
    folder: Path
    options: dict[str, Any]
    port: int


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the server does not answer")


def running(argv: list[str], port: int, log: Path, seconds: float = 20) -> Iterator[None]:
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        wait_for(port, process, seconds)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name in ("HF_TOKEN", "HF_ENDPOINT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    (folder / "bucket").mkdir()
    rclone = str(Path(sys.executable).with_name("rclone"))
    argv = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    argv += [
        "--config",
        str(folder / "no.conf"),
        "--dir-cache-time",
        f"{S3_SEES_AFTER:.0f}s",
        str(folder),
    ]
    options = {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}
    for _ in running(argv, port, folder.parent / "s3.log"):
        yield Server("s3://bucket", folder / "bucket", options, port)


@pytest.fixture(scope="session")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sftp")
    data = folder / "data"
    data.mkdir()
    with Sshd.make(folder / "ssh") as server:
        known = server.folder / "known"
        known.write_text(server.known)
        options = {"key": str(server.folder / "user"), "known_hosts": str(known)}
        url = f"sftp://{getpass.getuser()}@127.0.0.1:{server.port}{data}"
        yield Server(url, data, options, server.port)


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("web"), free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    argv += ["--directory", str(folder), "--protocol", "HTTP/1.1"]
    for _ in running(argv, port, folder.parent / "web.log"):
        yield Server(f"http://127.0.0.1:{port}", folder, {}, port)


@pytest.fixture
def cutter() -> Iterator[Cutter]:
    with Cutter() as made:
        yield made
