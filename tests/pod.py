"""A machine for fakes of clouds: its own tree of files and its own processes, thrown away together.

The tree is an overlay whose lower layer is this machine, so its "image" has the Python of the tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

CONTAINER = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$ROOM"
cd "$ROOM"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
rm -f root/root/.bashrc root/root/.profile root/root/.bash_profile
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount -t tmpfs tmpfs root/run
mount -t tmpfs tmpfs root/tmp
for folder in $BOUND; do mkdir -p "root$folder"; mount --rbind "$folder" "root$folder"; done
mount -t tmpfs tmpfs root/etc/ssh
printf 'Port %s\\nListenAddress 127.0.0.1\\n' "$SSH_PORT" > root/etc/ssh/sshd_config
test -z "${CTL:-}" || cp "$CTL" root/usr/local/bin/runpodctl
unset ROOM BOUND SSH_PORT CTL OLDPWD
exec chroot root "$@"
"""
"""Makes the files of the pod, in namespaces of its own. Its /tmp is empty, and root has no start files of a
shell: those of this machine may take a lock, which a killed shell leaves behind."""


def start_pod(
    room: Path, command: Sequence[str], env: Mapping[str, str], bound: Sequence[Path] = ()
) -> subprocess.Popen[bytes]:
    """Start a command as the first process of a new machine; all ends with the process.

    Args:
        room: folder for its files; the log is beside it.
        command: the command.
        env: its variables; `SSH_PORT` is for an sshd, `CTL` a program of the cloud.
        bound: further folders that it shares with this machine.
    """
    room.mkdir()
    python = Path(sys.executable).parent
    # Of the file system of `/` the overlay has all; bound, the pod would write into this machine's /usr.
    other = [
        one for one in (ROOT, Path(sys.base_prefix)) if one.stat().st_dev != Path("/").stat().st_dev
    ]
    whole = {
        "PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "ROOM": str(room), "BOUND": " ".join(map(str, [*other, *bound])),
        "OF_THE_IMAGE": "it's\nhere", **env,
    }  # fmt: skip
    # Mount and process namespaces: what a container is. They end with the first process.
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER]
    with room.with_name(f"{room.name}.log").open("wb") as log:
        return subprocess.Popen(
            [*words, "sh", *command], env=whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
