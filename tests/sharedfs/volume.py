"""A GlusterFS volume on this machine, mounted twice; each mount remembers what it saw, as a node does.

with volume() as both:
    (both.a / "x").write_text("1")
    assert (both.b / "x").read_text() == "1"
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.packages import install_packages
from tests.cluster.system import (
    MARK,
    SYSTEM_PATH,
    Daemon,
    LabError,
    alive,
    environ,
    kill,
    processes,
    run,
    wait_until,
)

PACKAGES = ("glusterfs-server", "glusterfs-client")
HOME = Path("/run/hpcbench-sharedfs")
PORT = 24007
"""Bricks and mounts know no other port of glusterd."""

BRICK_MEGABYTES = 96
CACHED_SECONDS = 10
"""So long a mount believes what it has seen of a file's size and times, and of a name.

Long enough for whatever happens in a test to happen meanwhile. NFS believes 3 to 60 s, but asks when a file
is opened; a mount of GlusterFS does not even then.
"""

GLUSTERD = """
volume management
    type mgmt/glusterd
    option working-directory {home}/glusterd
    option glusterd-sockfile {socket}
    option transport-type socket
    option transport.socket.listen-port {port}
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
"""


@dataclass(frozen=True)
class Volume:
    """The volume, up."""

    a: Path
    """Where one node has it."""
    b: Path
    """Where the other one has it."""

    def there(self, path: Path) -> Path:
        """The same file, as the other node names it."""
        here, other = (self.a, self.b) if path.is_relative_to(self.a) else (self.b, self.a)
        return other / path.relative_to(here)

    @contextlib.contextmanager
    def quota(self, megabytes: int) -> Iterator[None]:
        """While inside, no more than so much may lie on it."""
        gluster("volume", "quota", "v0", "enable")
        try:
            for limit in ("soft-timeout", "hard-timeout"):  # otherwise it counts now and then only
                gluster("volume", "quota", "v0", limit, "0")
            gluster("volume", "quota", "v0", "limit-usage", "/", f"{megabytes}MB")
            yield
        finally:
            gluster("volume", "quota", "v0", "disable")

    @contextlib.contextmanager
    def squashed(self) -> Iterator[None]:
        """While inside, the server takes root for the user `nobody`."""
        gluster("volume", "set", "v0", "server.root-squash", "on")
        try:
            yield
        finally:
            gluster("volume", "set", "v0", "server.root-squash", "off")


@contextlib.contextmanager
def volume() -> Iterator[Volume]:
    """A fresh volume; whatever a killed test left of an earlier one is cleared away first.

    Raises:
        LabError: it cannot be had here.
    """
    install_packages(PACKAGES)
    with Path(f"{HOME}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # one on a machine: glusterd has one port
        _clear()
        try:
            yield _up()
        finally:
            _clear()


def gluster(*words: str) -> None:
    """Tell glusterd something; no question is asked back."""
    command = ["gluster", f"--glusterd-sock={_socket()}", "--mode=script", *words]
    run(command, what=" ".join(words[:2]), timeout=120, env=_environ())


def _up() -> Volume:
    for name in ("run", "log", "glusterd", "brick", "a", "b"):
        (HOME / name).mkdir(parents=True)
    # In memory, so that fsync costs nothing, and small, so that it can be filled.
    size = f"size={BRICK_MEGABYTES}m"
    run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", HOME / "brick"], what="mount the brick")
    configuration = HOME / "glusterd.vol"
    configuration.write_text(GLUSTERD.format(home=HOME, socket=_socket(), port=PORT))
    words = ["glusterd", "-N", "-f", configuration, "-l", HOME / "log/glusterd.log"]
    daemon = Daemon("glusterd", words, HOME, at=PORT)
    daemon.start()
    daemon.wait_ready(30)
    wait_until(_answers, 120, "glusterd's answer")
    gluster("volume", "create", "v0", f"{socket.gethostname()}:{HOME}/brick/v0", "force")
    gluster("volume", "set", "v0", "storage.reserve", "0")  # it is full when its brick is
    gluster("volume", "start", "v0")
    for name in ("a", "b"):
        options = f"attribute-timeout={CACHED_SECONDS},entry-timeout={CACHED_SECONDS}"
        log = f"log-file={HOME}/log/{name}.log"
        words = ["mount", "-t", "glusterfs", "-o", f"{options},{log}"]
        words += [f"{socket.gethostname()}:/v0", HOME / name]
        run(words, what="mount the volume", timeout=120, env=_environ())
    return Volume(HOME / "a", HOME / "b")


def _answers() -> bool:
    try:
        gluster("volume", "list")
    except LabError:
        return False
    return True


def _clear() -> None:
    """Unmount, end and remove all of it, however much there is."""
    table = Path("/proc/mounts").read_text().splitlines()
    mounts = [line.split()[1] for line in table if line.split()[1].startswith(f"{HOME}/")]
    bricks_last = sorted(mounts, key=lambda path: path.endswith("/brick"))
    for path in bricks_last:
        run(["umount", "-l", path], what=f"unmount {path}")
    ours = [pid for pid in processes() if environ(pid).get(MARK, "").startswith(f"{HOME}:")]
    kill(ours)
    wait_until(lambda: not any(map(alive, ours)), 120, "GlusterFS to end")
    shutil.rmtree(HOME, ignore_errors=True)


def _socket() -> Path:
    return HOME / "glusterd.socket"


def _environ() -> dict[str, str]:
    """By the mark in it what we start is known, with all that it starts."""
    return {**os.environ, "PATH": SYSTEM_PATH, MARK: f"{HOME}:client"}
