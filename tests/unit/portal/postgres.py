"""A real PostgreSQL on the loopback, in a folder of its own, for as long as it is wanted."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_ENVIRON = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Missing(Exception):
    """There is no PostgreSQL on this machine."""


def programs() -> Path:
    """Folder of its programs: Debian keeps them out of PATH.

    Raises:
        Missing: there is none.
    """
    found = shutil.which("initdb") or next(
        iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[::-1]), None
    )
    if found is None:
        raise Missing("no PostgreSQL: apt-get install postgresql")
    return Path(found).resolve().parent


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Start one; gives its address, with a password.

    Raises:
        Missing: there is none.
    """
    bin_, password = programs(), secrets.token_hex(8)
    # It refuses to run as root; Debian's package makes an account for it.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(
        prefix="hpcbench-pg-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        secret = folder / "password"
        secret.write_text(password)
        if os.geteuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        data = folder / "data"
        _run(user, bin_ / "initdb", "-D", data, "-U", "hpcbench", "-A", "scram-sha-256", f"--pwfile={secret}",
             "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        server = _start(user, bin_, data, port)
        try:
            _wait(server, bin_, port, folder / "log")
            yield f"postgresql://hpcbench:{password}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once
            server.wait()


def _start(user: str, bin_: Path, data: Path, port: int) -> subprocess.Popen[bytes]:
    """The server; it ends with us, however that comes."""
    account = pwd.getpwnam(user)
    become = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
    settings = (
        f"port={port}",
        "listen_addresses=127.0.0.1",
        f"unix_socket_directories={data}",
        "fsync=off",
    )
    with (data.parent / "log").open("wb") as log:
        return subprocess.Popen(
            ["setpriv", *(become if os.geteuid() == 0 else []), "--pdeathsig", "QUIT",
             str(bin_ / "postgres"), "-D", str(data), *(part for one in settings for part in ("-c", one))],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_ENVIRON,
        )  # fmt: skip


def _wait(server: subprocess.Popen[bytes], bin_: Path, port: int, log: Path) -> None:
    """Until it takes connections."""
    ask = [str(bin_ / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while server.poll() is None:
        if subprocess.run(ask, env=_ENVIRON, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace')}")


def _run(user: str, *argv: str | Path) -> None:
    account = pwd.getpwnam(user)
    with tempfile.TemporaryFile() as said:  # no pipe: the server would hold its other end
        done = subprocess.run(
            [str(one) for one in argv],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            user=account.pw_uid if os.geteuid() == 0 else None,
            group=account.pw_gid if os.geteuid() == 0 else None,
            cwd="/",
            env=_ENVIRON,
            check=False,
        )
        said.seek(0)
        if done.returncode:
            raise RuntimeError(f"{argv[0]}: {said.read().decode(errors='replace')}")


def served() -> Iterator[str]:
    """For a fixture: the address of one. Tests fail where there is none."""
    from tests.conftest import unavailable  # benchmarks start one without pytest

    try:
        programs()
    except Missing as missing:
        unavailable(str(missing))
    with postgresql() as url:
        yield url
