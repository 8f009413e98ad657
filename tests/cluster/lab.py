"""The lab: one machine that behaves as a Slurm cluster of four nodes with Apptainer.

lab = Lab.current()
lab.up()
lab.run_as_user(["sbatch", "--wrap", "hostname"])
with lab.without_node("n2"):
    ...
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import image, packages, sglang_env, slurm, vllm_env
from .image import SUITE
from .system import (
    SYSTEM_PATH,
    Daemon,
    LabError,
    alive,
    environ,
    kill,
    open_files,
    processes,
    program_name,
    run,
    timed,
    wait_until,
    with_descendants,
)

DEFAULT_HOME = "/var/lib/hpcbench-lab"
# Handed to the ordinary user as they are: where certificates lie, and the way out to the network.
PASSED = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
    *("OPENBLAS_CORETYPE", "TERM"),
)


@dataclass(frozen=True)
class Job:
    """One line of squeue: `id` is `12` or `12_3`, `state` Slurm's compact form (R, PD, CG…)."""

    id: str
    state: str
    node: str
    reason: str
    partition: str
    name: str


@dataclass(frozen=True)
class Lab:
    """The cluster below one directory; all its state is in that directory."""

    home: Path

    @classmethod
    def current(cls) -> Lab:
        """The lab of this machine: `$HPCBENCH_LAB`, or the default place."""
        return cls(Path(os.environ.get("HPCBENCH_LAB") or DEFAULT_HOME).absolute())

    # -- the ordinary user ------------------------------------------------------------------

    @property
    def user_home(self) -> Path:
        return self.home / "home" / slurm.USER

    def env(self) -> dict[str, str]:
        """The environment of a process of the ordinary user; nothing of root's goes in."""
        return {
            "HOME": str(self.user_home),
            "USER": slurm.USER,
            "LOGNAME": slurm.USER,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": f"{self.home}/bin:{SYSTEM_PATH}",
            "SLURM_CONF": slurm.daemon_environment(self.home)["SLURM_CONF"],
        } | {name: os.environ[name] for name in PASSED if name in os.environ}

    @property
    def singularity(self) -> Path:
        """SingularityCE; `singularity` on the user's PATH is Apptainer by its old name."""
        return self.home / "singularity-ce/usr/bin/singularity"

    def user_argv(self, argv: Sequence[str | Path]) -> list[str]:
        """The command that runs `argv` as the ordinary user (for the caller's own Popen)."""
        switch = ["setpriv", f"--reuid={slurm.USER}", f"--regid={slurm.USER}", "--init-groups"]
        return [*switch, "--", *map(str, argv)]

    def run_as_user(
        self,
        argv: Sequence[str | Path],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the ordinary user; the caller judges its return code.

        Args:
            cwd: the user's home if not given.
            env: added to `Lab.env()`.
        """
        return subprocess.run(
            self.user_argv(argv),
            cwd=cwd or self.user_home,
            env=self.env() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def new_directory(self, prefix: str = "test") -> Path:
        """A fresh directory below the user's home, which the user may write."""
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=self.user_home))
        path.chmod(0o755)
        shutil.chown(path, slurm.USER, slurm.USER)
        return path

    # -- up and down ------------------------------------------------------------------------

    def install(self) -> None:
        """Install the Debian packages, Apptainer, SingularityCE and uv, whatever of them is missing."""
        with self._alone():
            packages.install_packages()
            packages.unpack_apptainer(self.home)
            packages.unpack_singularity(self.home)
            packages.ensure_uv(self.home)

    def up(self, timeout: float = 60) -> None:
        """Bring everything up that is not; harmless when all of it runs."""
        self.install()
        with self._broken(alone=True), self._alone():
            self._make_user()
            _open_fuse()
            daemons = slurm.daemons(self.home)
            if slurm.write_configuration(self.home):
                self._stop(*slurm.NODES, "slurmctld", "slurmdbd")  # they run with the old one
            if not any(daemons[node].pid() for node in slurm.NODES):
                self._kill_jobs(*slurm.NODES)
            with timed("munge, database"):
                slurm.prepare_munge(self.home)
                slurm.prepare_database(self.home)
                self._start("munged", "mariadbd", timeout=timeout)
            with timed("slurmdbd, accounts"):
                self._start("slurmdbd", timeout=timeout)
                self._make_accounts()
            with timed("slurmctld, four nodes"):
                self._start("slurmctld", *slurm.NODES, timeout=timeout)
                self._resume_drained()
                self.wait_responding(timeout)
                self._slurm("sacct", "-X")
            if image.has_image(self.home):
                with timed("registry"):
                    image.start_registry(self.home)

    def down(self, purge: bool = False) -> None:
        """End every process of the lab; `purge` also removes its directory and its user."""
        with self._alone():
            self._stop(*slurm.NODES, "slurmctld", "slurmdbd", "mariadbd", "munged", "registry")
            self._kill_jobs(*slurm.NODES)
            if not purge:
                return
            if _known_user():
                run(["userdel", "--force", slurm.USER], what=f"remove the user {slurm.USER}")
            packages.remove_singularity(self.home)
            shutil.rmtree(self.home, ignore_errors=True)
            if self.home.exists():
                raise LabError(f"cannot remove all of {self.home}: something there is in use")

    def image(self) -> tuple[str, str]:
        """Build the test image if need be and serve it; its `docker://` address and digest."""
        return self._image("engine")

    def python_image(self) -> tuple[str, str]:
        """The same for the small image below it, which has Python and no engine."""
        return self._image("python")

    def _image(self, name: str) -> tuple[str, str]:
        self.install()
        with self._alone():
            return image.ADDRESSES[name], image.ensure_images(self.home)[name]

    def base_image(self, suite: str = SUITE) -> tuple[str, str]:
        """The same for a plain Debian, which image recipes are built from."""
        self.install()
        with self._alone():
            return f"{image.BASE}:{suite}", image.ensure_base(self.home, suite)

    def sglang(self) -> Path:
        """Make the SGLang environment if need be; the path of its Python."""
        python = self.vllm()
        with self._alone():
            return sglang_env.ensure_sglang(self.home, python)

    def vllm(self) -> Path:
        """Make the vLLM environment if need be; the path of its Python."""
        self.install()
        with self._alone():
            return vllm_env.ensure_vllm(self.home)

    def daemons(self) -> dict[str, Daemon]:
        """All daemons by name, running or not."""
        return slurm.daemons(self.home) | {"registry": image.registry(self.home)}

    def status(self) -> dict[str, str]:
        """Every daemon with its process number or "down"; running nodes with their state too."""
        found = {}
        for name, daemon in self.daemons().items():
            pid = daemon.pid()
            found[name] = f"pid {pid}" if pid else "down"
        with contextlib.suppress(LabError):
            for node, state in self.node_states().items():
                found[node] += f", {state}"
        return found

    def described(self) -> str:
        """Daemons, nodes, jobs of the queue and the controller's last lines."""
        parts = [f"{name}: {state}" for name, state in self.status().items()]
        for argv in (("sinfo", "-R"), ("scontrol", "-o", "show", "job")):
            try:
                parts.append(self._slurm(*argv))
            except LabError as error:
                parts.append(str(error))
        log = self.home / "log" / "slurmctld.log"
        if log.exists():
            parts.append(log.read_bytes()[-8000:].decode(errors="replace"))
        return "\n".join(parts)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others (test workers, a second shell) from changing the lab at the same time."""
        if os.geteuid():
            raise LabError("the lab needs root: it installs packages and serves several users")
        try:
            for folder in ("", "run", "log", "run/slurm", "bin"):
                (self.home / folder).mkdir(parents=True, exist_ok=True)
                (self.home / folder).chmod(0o755)
            with (self.home / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise LabError(f"cannot work below {self.home}: {error}") from error

    def _make_user(self) -> None:
        home = self.user_home
        home.parent.mkdir(parents=True, exist_ok=True)
        if not _known_user():
            run(
                ["useradd", "--uid", str(_free_uid()), "--user-group", "--shell", "/bin/bash"]
                + ["--home-dir", str(home), "--no-create-home", slurm.USER],
                what=f"make the user {slurm.USER}",
            )
        elif pwd.getpwnam(slurm.USER).pw_dir != str(home):
            run(["usermod", "--home", str(home), slurm.USER], what="move the user's home")
        for kind in ("uid", "gid"):  # for Apptainer's --fakeroot; useradd mostly gave them already
            if f"{slurm.USER}:" not in Path(f"/etc/sub{kind}").read_text():
                words = ["usermod", f"--add-sub{kind}s", "1000000000-1000065535", slurm.USER]
                run(words, what=f"give the user subordinate {kind}s")
        home.mkdir(exist_ok=True)
        home.chmod(0o755)
        shutil.chown(home, slurm.USER, slurm.USER)

    def _make_accounts(self) -> None:
        """Cluster, account and user in the accounting database, as far as they are missing."""
        known = self._slurm("sacctmgr", "show", "assoc", "format=cluster,account,user").split()
        add = ("sacctmgr", "--immediate", "add")
        if not any(line.startswith(f"{slurm.CLUSTER}|") for line in known):
            self._slurm(*add, "cluster", slurm.CLUSTER)
        if f"{slurm.CLUSTER}|{slurm.ACCOUNT}|" not in known:
            self._slurm(*add, "account", slurm.ACCOUNT, f"cluster={slurm.CLUSTER}")
        if f"{slurm.CLUSTER}|{slurm.ACCOUNT}|{slurm.USER}" not in known:
            self._slurm(*add, "user", slurm.USER, f"account={slurm.ACCOUNT}")

    def _start(self, *names: str, timeout: float = 20) -> None:
        daemons = self.daemons()
        for name in names:
            daemons[name].start(slurm.daemon_environment(self.home))
        for name in names:
            daemons[name].wait_ready(timeout)

    def _stop(self, *names: str) -> None:
        daemons = self.daemons()
        for name in names:
            daemons[name].stop()

    # -- Slurm ------------------------------------------------------------------------------

    def _slurm(self, *argv: str, timeout: float = 30) -> str:
        """A Slurm command as root, without header, columns separated by `|`."""
        plain = {"sacctmgr": ["-nP"], "sacct": ["-nP"]}.get(argv[0], [])
        words = [argv[0], *plain, *argv[1:]]
        env = {"PATH": SYSTEM_PATH} | slurm.daemon_environment(self.home)
        return run(words, what=f"ask {argv[0]}", env=env, timeout=timeout)

    def node_states(self) -> dict[str, str]:
        """State of each node as sinfo says it; `*` at its end: the node does not answer."""
        lines = self._slurm("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        return dict((name, state) for name, state in map(str.split, lines))

    def is_down(self, node: str) -> bool:
        """Whether Slurm has given a node up; sinfo calls it drained when Slurm had drained it before."""
        return (
            "DOWN"
            in self._slurm("scontrol", "-o", "show", "node", node).partition("State=")[2].split()[0]
        )

    @contextlib.contextmanager
    def drained(self, nodes: Sequence[str]) -> Iterator[None]:
        """Nodes on which Slurm starts no job inside the block."""
        where = f"NodeName={','.join(nodes)}"
        self._slurm("scontrol", "update", where, "State=DRAIN", "Reason=test")
        try:
            yield
        finally:
            self._slurm("scontrol", "update", where, "State=RESUME")

    def _resume_drained(self) -> None:
        """Slurm drains a node on which a launch went wrong, and leaves it so for ever."""
        for node, state in self.node_states().items():
            if "drain" in state:
                self._slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def wait_responding(self, timeout: float = 60) -> None:
        """Wait until every node is up, busy or not; those that Slurm drained may serve again."""
        good = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}

        def ready() -> bool:
            with contextlib.suppress(LabError):
                self._resume_drained()
                states = self.node_states()
                return len(states) == len(slurm.NODES) and good.issuperset(states.values())
            return False

        wait_until(ready, timeout, "all nodes to answer", every=0.2)

    def wait_idle(self, timeout: float = 60) -> None:
        """Wait until every node is idle."""
        idle = {node: "idle" for node in slurm.NODES}
        wait_until(lambda: self.node_states() == idle, timeout, "all nodes to be idle", every=0.2)

    def squeue(self) -> list[Job]:
        """All jobs in the queue, array elements one by one."""
        form = "%i|%t|%N|%r|%P|%j"
        lines = self._slurm("squeue", "-h", "-r", "-o", form).splitlines()
        return [Job(*line.split("|", 5)) for line in lines]

    def cancel_all(self, timeout: float = 30) -> None:
        """Cancel every job and wait until the queue is empty."""
        jobs = sorted({job.id.partition("_")[0] for job in self.squeue()})
        if jobs:
            self._slurm("scancel", *jobs)
            wait_until(lambda: not self.squeue(), timeout, "the queue to be empty", every=0.2)

    def release_requeued(self, job_id: str) -> None:
        """Let a requeued job start now instead of after its waiting time (BeginTime)."""
        done = self.run_as_user(["scontrol", "update", f"JobId={job_id}", "StartTime=now"])
        if done.returncode:
            raise LabError(f"cannot release job {job_id}: {done.stderr.strip()}")

    # -- dead nodes -------------------------------------------------------------------------

    @contextlib.contextmanager
    def without_node(self, node: str) -> Iterator[None]:
        """A node and all its jobs' processes ended as by a power cut; it is back at the end."""
        with self.without_slurmd(node):
            self._kill_jobs(node)
            yield

    @contextlib.contextmanager
    def without_slurmd(self, node: str) -> Iterator[None]:
        """A node's daemon killed, which runs again at the end; its jobs live on, as after a network cut."""
        with self._broken():
            slurm.daemons(self.home)[node].kill()  # first, or it would report that its jobs ended
            try:
                yield
            finally:
                self._start(node)
                self.wait_responding()

    @contextlib.contextmanager
    def _broken(self, alone: bool = False) -> Iterator[None]:
        """Daemons are missing on purpose; `up` (alone) waits until they are back, or it would mend them."""
        with (self.home / "broken.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def without(self, *names: str, timeout: float = 60) -> Iterator[None]:
        """Daemons (`slurmctld`, `slurmdbd`) stopped in order, and started again at the end."""
        with self._broken():
            try:
                self._stop(*names)
                yield
            finally:
                self._start(*names, timeout=timeout)
                self.wait_responding(timeout)

    @contextlib.contextmanager
    def slurmctld_killed(self, saved: Path | None = None, timeout: float = 60) -> Iterator[None]:
        """slurmctld killed, so that it saves nothing more, and started again at the end.

        Args:
            saved: what it shall know of jobs then, by `save_jobs`; None: what it saved last, seconds ago.
            timeout: until it answers, seconds.
        """
        with self._broken():
            try:
                slurm.daemons(self.home)["slurmctld"].kill()
                yield
            finally:
                if saved is not None:
                    for path in self._job_state():
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                    shutil.copytree(saved, self.state, dirs_exist_ok=True, symlinks=True)
                self._start("slurmctld", timeout=timeout)

    def save_jobs(self, to: Path) -> Path:
        """A copy of what slurmctld has saved of jobs; it does so every few seconds."""
        to.mkdir()
        for path in self._job_state():
            copy = to / path.name
            shutil.copytree(path, copy) if path.is_dir() else shutil.copy2(path, copy)
        return to

    @property
    def state(self) -> Path:
        """Folder of the state that slurmctld saves."""
        return self.home / "slurm" / "state"

    def _job_state(self) -> list[Path]:
        """Jobs, and below `hash.N` their scripts."""
        return [*self.state.glob("job_state*"), *self.state.glob("hash.*")]

    @contextlib.contextmanager
    def reserved(self, *nodes: str) -> Iterator[str]:
        """A reservation that has these nodes to itself: jobs of others end there first, and none begins."""
        name = f"test{uuid.uuid4().hex[:8]}"
        words = [f"users={slurm.USER}", "starttime=now", "duration=30", "flags=ignore_jobs"]
        where = ",".join(nodes)
        self._slurm("scontrol", "create", f"reservation={name}", *words, f"nodes={where}")
        try:
            at_work = ("squeue", "-h", "--states=R,CG", f"--nodelist={where}")
            wait_until(lambda: not self._slurm(*at_work).strip(), 120, f"{where} to be idle")
            yield name
        finally:
            # Slurm keeps a reservation while a job is in it.
            self._without_jobs(f"--reservation={name}")
            self._slurm("scontrol", "delete", f"reservation={name}")

    @contextlib.contextmanager
    def submit_limit(self, jobs: int) -> Iterator[str]:
        """An account in which the ordinary user may have so many jobs at once, each array task one."""
        account = f"limit{uuid.uuid4().hex[:8]}"
        change = ("sacctmgr", "--immediate")
        self._slurm(*change, "add", "account", account, f"cluster={slurm.CLUSTER}")
        try:
            limited = (f"account={account}", f"MaxSubmitJobs={jobs}")
            self._slurm(*change, "add", "user", slurm.USER, *limited)
            yield account
        finally:
            # Slurm keeps an account in which a job has yet to end.
            self._without_jobs(f"--account={account}")
            self._slurm(*change, "delete", "user", slurm.USER, f"account={account}")
            self._slurm(*change, "delete", "account", account)

    def _without_jobs(self, which: str) -> None:
        """Cancel the jobs that an option of scancel and squeue names, and wait until they are gone."""
        self._slurm("scancel", which)
        wait_until(
            lambda: not self._slurm("squeue", "-h", which).strip(), 60, f"jobs of {which} to end"
        )

    def _kill_jobs(self, *nodes: str) -> None:
        """Kill the job processes of these nodes, the step daemons first: they would report."""

        def all_dead() -> bool:  # asks again, for what was just being forked
            victims = [pid for node in nodes for pid in self._job_processes(node) if alive(pid)]
            kill(victims)
            return not victims

        wait_until(all_dead, 60, f"the job processes of {', '.join(nodes)} to die", every=0.02)

    def _job_processes(self, node: str) -> list[int]:
        """All processes of a node's jobs.

        slurmstepd detaches and overwrites its environment, but keeps its node's log file open. With
        cgroups also that is found which went away from its parents (a daemonised server).
        """
        log = self.home / f"log/slurmd-{node}.log"
        steps = [
            pid
            for pid in processes()
            if program_name(pid) == "slurmstepd" and log in open_files(pid)
        ]
        tasks = [pid for pid in processes() if environ(pid).get("SLURMD_NODENAME") == node]
        for path in Path("/sys/fs/cgroup/freezer").glob(f"slurm_{node}/**/cgroup.procs"):
            with contextlib.suppress(OSError):
                tasks += map(int, path.read_text().split())
        return with_descendants([*steps, *tasks])


def _open_fuse() -> None:
    """Let users mount images; some machines keep /dev/fuse to root."""
    fuse = Path("/dev/fuse")
    if fuse.exists():
        fuse.chmod(0o666)
    else:
        print("  no /dev/fuse: Apptainer can only run unpacked images here")


def _known_user() -> bool:
    with contextlib.suppress(KeyError):
        pwd.getpwnam(slurm.USER)
        return True
    return False


def _free_uid() -> int:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in itertools.count(20001) if uid not in taken)
