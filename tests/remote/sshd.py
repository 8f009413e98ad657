"""An sshd on loopback with keys of its own, for tests that log in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.packages import install_packages
from tests.cluster.system import LabError
from tests.conftest import unavailable

USER_KEY, HOST_KEY = "user", "host"


def sshd_program() -> str:
    """The sshd of this machine, installed if need be."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(sshd).exists():
        try:
            install_packages(("openssh-server",))
        except LabError as error:
            unavailable(f"no sshd on this machine: {error}")
    Path("/run/sshd").mkdir(exist_ok=True)
    return sshd


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def new_key(path: Path, passphrase: str = "") -> Path:
    """A fresh key pair."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True
    )
    return path


@dataclass
class Sshd:
    """One server; its files lie in `folder`, which its user may read."""

    folder: Path
    port: int
    as_user: Sequence[str] = ()
    """Words before its command line that make it another user's."""
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, folder: Path, as_user: Sequence[str] = ()) -> Sshd:
        """A server that lets in who has the key `folder/user`."""
        folder.mkdir(parents=True, exist_ok=True)
        server = cls(folder, free_port(), as_user)
        for name in (HOST_KEY, USER_KEY):
            new_key(folder / name)
        shutil.copy(folder / "user.pub", folder / "authorized")
        (folder / "config").write_text(
            f"Port {server.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
            f"PidFile {folder}/pid\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
            "PermitRootLogin yes\nUsePAM no\nPasswordAuthentication no\nLogLevel VERBOSE\n"
            "KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 100\n"
        )
        return server

    @property
    def known(self) -> str:
        """Its line in known_hosts."""
        return self.known_as(self.port)

    def known_as(self, port: int) -> str:
        """The same at another port."""
        key = " ".join((self.folder / "host.pub").read_text().split()[:2])
        return f"[127.0.0.1]:{port} {key}\n"

    @property
    def log(self) -> str:
        """Its output so far."""
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Let it listen."""
        argv = [*self.as_user, sshd_program(), "-D", "-e", "-f", str(self.folder / "config")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("sshd does not answer")

    def stop(self) -> None:
        """End it and every connection to it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def drop_sessions(self) -> None:
        """End the connections there are; it goes on listening."""
        assert self.process is not None
        argv = ["ps", "--ppid", str(self.process.pid), "-o", "pid="]
        for pid in subprocess.run(argv, capture_output=True, text=True).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def __enter__(self) -> Sshd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.stop()
