"""SkyPilot's real program and API server, on a Slurm cluster of one node that is made for them here.

Clouds and Kubernetes cannot be had here, and on Slurm SkyPilot runs no images without Pyxis: so machines have
no image. Fakes, where this machine reaches no network: `curl`, by which SkyPilot fetches uv, and Python 3.10.
The node is an overlay of this machine, so that nothing of what SkyPilot installs remains.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.lab import Lab
from tests.cluster.packages import ensure_uv, install_packages
from tests.cluster.slurm import cgroup_version
from tests.pod import start_pod
from tests.remote.sshd import Sshd, free_port

VERSION = "0.14.1"

SLURM_CONF = """\
ClusterName=sky
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
NodeName=s1 NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=16 RealMemory=64000
PartitionName=main Nodes=ALL Default=YES MaxTime=1-0 DefaultTime=60
"""

CURL = """#!/bin/sh
echo 'mkdir -p "$UV_INSTALL_DIR" && cp {folder}/uv "$UV_INSTALL_DIR/uv"'
"""

UV = """#!/bin/bash
words=(); for word in "$@"; do [ "$word" = 3.10 ] && word={python}; words+=("$word"); done
export UV_CACHE_DIR={cache} UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
exec {uv} "${{words[@]}}"
"""

NODE = """
set -e
mkdir -p /run/sshd
cp {folder}/curl /usr/local/bin/curl
exec env SLURM_CONF={folder}/slurm.conf slurmd -D -N s1
"""


def ensure_sky(home: Path) -> Path:
    """The program `sky`, in an environment of its own."""
    venv = home / f"skypilot-{VERSION}"
    if not (venv / "complete").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", f"skypilot=={VERSION}"], check=True)
        (venv / "complete").touch()
    return venv / "bin/sky"


class RealSky:
    """A server, its Slurm and its login node; a context manager."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder, self._lab = folder, lab
        self.home = folder / "home"
        self.program = ensure_sky(lab.home)
        self._started: list[subprocess.Popen[bytes]] = []
        self._sshd: Sshd | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self.env = {
            "HOME": str(self.home),
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(free_port()),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }

    def __enter__(self) -> RealSky:
        with contextlib.ExitStack() as undo:
            undo.callback(self.__exit__)
            self._begin()
            undo.pop_all()
        return self

    def _begin(self) -> None:
        install_packages()
        for name in ("home/.slurm", "state", "spool", "shared", "munge"):
            (self.folder / name).mkdir(parents=True)
        self._start_slurm()
        self._let_in()
        self._start(
            [str(self.program), "api", "start", "--foreground"], "server", os.environ | self.env
        )
        self._wait(lambda: ".HEALTHY" in self.sky("api", "info").stdout, 180)

    def __exit__(self, *_: object) -> None:
        if self._sshd is not None:
            self._sshd.stop()
        if self._node is not None:
            self._node.kill()  # and so all in it
            self._node.wait()
        for process in reversed(self._started):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):  # some of them ignore SIGTERM
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def sky(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program."""
        return subprocess.run(
            [self.program, *words], env=os.environ | self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def jobs(self) -> list[str]:
        """Names of Slurm's jobs: SkyPilot's machines."""
        return self._slurm("squeue", "--noheader", "--format=%j").split()

    def log(self) -> str:
        """The server's log."""
        return (self.folder / "server.log").read_text(errors="replace")

    def preempt(self) -> None:
        """Take all machines away."""
        self._slurm("scancel", "--partition=main")

    def _slurm(self, *words: str) -> str:
        env = os.environ | {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    def _start_slurm(self) -> None:
        folder, munge = self.folder, self.folder / "munge"
        host = socket.gethostname().partition(".")[0]
        names = {"folder": folder, "host": host, "ctld": free_port(), "slurmd": free_port()}
        (folder / "slurm.conf").write_text(SLURM_CONF.format(**names))
        (folder / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/v{cgroup_version()}\nIgnoreSystemd=yes\nCgroupAutomount=yes\n"
        )
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        for path in (munge, munge / "key"):
            shutil.chown(path, "munge", "munge")
        self._start(
            ["runuser", "-u", "munge", "--", "munged", "--foreground", "--force"]
            + [f"--socket={munge}/socket", f"--key-file={munge}/key", f"--pid-file={munge}/pid"]
            + [f"--seed-file={munge}/seed", f"--log-file={munge}/log"],
            "munged",
        )
        self._wait((munge / "socket").exists, 20)
        env = {"SLURM_CONF": f"{folder}/slurm.conf", "PATH": os.environ["PATH"]}
        self._start(["slurmctld", "-D"], "slurmctld", env)
        python = ".".join(map(str, sys.version_info[:2]))
        uv = ensure_uv(self._lab.home).resolve()
        for name, text in (
            ("curl", CURL.format(folder=folder)),
            ("uv", UV.format(python=python, cache=self._lab.home / "skypilot-uv", uv=uv)),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self._node = start_pod(
            folder / "node", ["sh", "-c", NODE.format(folder=folder)], {"SSH_PORT": "22"},
            bound=[folder, self._lab.home, Path("/sys")],
        )  # fmt: skip
        self._wait(lambda: "idle" in self._slurm("sinfo", "--noheader"), 60)

    def _let_in(self) -> None:
        """The login node: an sshd of this machine."""
        server = self._sshd = Sshd.make(self.folder / "sshd")
        config = self.folder / "sshd/config"
        config.write_text(
            f"{config.read_text()}SetEnv SLURM_CONF={self.folder}/slurm.conf HOME={self.folder}/shared\n"
        )
        server.start()
        (self.home / ".slurm/config").write_text(
            f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User root\n"
            f"  IdentityFile {self.folder}/sshd/user\n"
        )

    def _start(self, argv: Sequence[str], name: str, env: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            )

    def _wait(self, test: object, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                if callable(test) and test():
                    return
            except subprocess.CalledProcessError:
                pass
            logs = {path.name: path.read_text()[-300:] for path in self.folder.glob("*.log")}
            assert time.monotonic() < until, logs
            time.sleep(0.5)
