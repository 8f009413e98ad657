"""Real servers on loopback: S3, SSH and HTTP, each a child process that ends with the tests.

S3 is `rclone serve s3`: an implementation that is not Amazon's and not ours, which keeps objects as files.
Of the Hugging Face hub there is only a fake, for the hub cannot be reached from here: `hub.py`, after the
published API.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.packages import install_packages
from tests.cluster.system import LabError
from tests.conftest import unavailable
from tests.remote.cutter import Cutter

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


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


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
    folder, port = tmp_path_factory.mktemp("sftp"), free_port()
    ssh = folder / "ssh"
    ssh.mkdir()
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(sshd).exists():
        try:
            install_packages(("openssh-server",))
        except LabError as error:
            unavailable(f"no sshd on this machine: {error}")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)], check=True
        )
    (ssh / "authorized").write_text((ssh / "user.pub").read_text())
    host_key = " ".join((ssh / "host.pub").read_text().split()[:2])
    (ssh / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    (ssh / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {ssh}/host\nPidFile {ssh}/pid\n"
        f"AuthorizedKeysFile {ssh}/authorized\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 100\n"
    )
    data = folder / "data"
    data.mkdir()
    options = {"key": str(ssh / "user"), "known_hosts": str(ssh / "known")}
    url = f"sftp://{getpass.getuser()}@127.0.0.1:{port}{data}"
    for _ in running([sshd, "-D", "-e", "-f", str(ssh / "config")], port, folder / "log"):
        yield Server(url, data, options, port)


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
