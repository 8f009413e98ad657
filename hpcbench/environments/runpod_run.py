"""`python -m hpcbench.environments.runpod_run`: rents a pod, runs a command in it, deletes the pod.

Input, output and signals of the command are forwarded, and so is every connection to a Unix socket in its
private folder. However the command ends, the pod is deleted: by this process, by `runpod_guard` if this
process was killed, by the pod itself after its deadline, or by the next `prepare`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

from hpcbench import secret
from hpcbench.environments.inside import PACKAGES, Bind, private
from hpcbench.environments.packages import Probe, last_words, packages_for, probe, probed_once
from hpcbench.environments.runpod import SPEC, Rented, Spec, spent
from hpcbench.environments.runpod_api import Api, ApiFault
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.files.atomic import replacing
from hpcbench.ssh.connection import Connection
from hpcbench.ssh.login import Host

FETCH_SECONDS = 15.0
"""Interval in which files written in the pod are copied here, so that little is lost with the pod."""

FOUND_SECONDS = 30.0
"""Seconds in which a new pod may be unknown to the API."""

LATE = 15.0
"""Seconds after its deadline in which we or the guard delete a pod; then it deletes itself."""

FAILED = 255
"""Exit code if something other than the command failed; the last line then begins with FATAL."""

START = """
(umask 077; export -p > /run/hpcbench.env; mkdir -p /root/.ssh
printf '%s\\n' "$PUBLIC_KEY" >> /root/.ssh/authorized_keys)
if ! command -v rsync >/dev/null || ! [ -x /usr/sbin/sshd ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install -y --no-install-recommends openssh-server rsync
fi
mkdir -p /run/sshd
test -f /run/hpcbench.host || ssh-keygen -q -t ed25519 -N '' -f /run/hpcbench.host
exec /usr/sbin/sshd -D -e -h /run/hpcbench.host -o PermitRootLogin=prohibit-password \\
    -o PasswordAuthentication=no -o UsePAM=no -o AllowStreamLocalForwarding=yes \\
    -o AllowTcpForwarding=yes -o MaxSessions=50
"""
"""Replaces the entry point of the image in a pod. Sessions of sshd lack the image's environment, so a file
keeps it; a host key in the image would be public, so a new one is generated."""

IMAGE = ". /run/hpcbench.env; unset PUBLIC_KEY SSH_PUBLIC_KEY RUNPOD_API_KEY; "
"""Shell commands that give a session the image's environment."""

LAUNCH = f"""
import json, os, sys
line = b""
while not line.endswith(b"\\n"):
    line += os.read(0, 1) or sys.exit("no command came")
asked = json.loads(line)
os.environ.update(asked["env"])
paths = ["{PACKAGES}", *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(paths)
with open("/run/hpcbench.pid", "w") as file:
    file.write(str(os.getpid()))
os.chdir(asked["cwd"])
try:
    os.execvp(asked["argv"][0], asked["argv"])
except OSError as error:
    print(asked["argv"][0] + ":", error.strerror, file=sys.stderr)
    sys.exit(127)
"""
"""Becomes the command in the pod. The first line of standard input has its environment: every user can read
arguments, there as here."""


class _Stopped(Exception):
    """A signal came before the command started."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} before the command ran")


class _Signals:
    """Current effect of a signal: it stops us, waits, or is forwarded to the command in the pod."""

    def __init__(self) -> None:
        self.pod: _Pod | None = None
        """The pod whose command gets the signals."""
        self.deaf = False
        self._heard: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._handle)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Signals wait inside the block: no response of the API may be lost."""
        self.deaf = True
        yield
        self.deaf = False
        if self._heard is not None:
            raise _Stopped(self._heard)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.deaf:
            self._heard = number
        elif self.pod is not None:
            self.pod.signal(number)
        else:
            raise _Stopped(number)


def main() -> int:
    """Execute the task in the environment variable."""
    spec = Spec.model_validate_json(os.environ.pop(SPEC))
    signals = _Signals()
    started = threading.Event()
    threading.Thread(target=_until_alone, args=(started, os.getppid()), daemon=True).start()
    try:
        return run(spec, signals, started)
    except _Stopped as stopped:
        _say(str(stopped))
        return 128 + stopped.number
    except HpcbenchError as error:
        _say(f"FATAL: {error}")
        return FAILED


def run(spec: Spec, signals: _Signals, started: threading.Event) -> int:
    """The whole life of a pod; returns the command's exit code.

    Raises:
        EnvironmentFault: there is no such pod, it costs too much, or it disappeared.
    """
    own = private(spec.mounts)
    within = None if own is None else own.source
    with tempfile.TemporaryDirectory(prefix=".pod-", dir=within) as name:
        folder = Path(name)
        key = _key(spec, folder)
        with _Lease(spec, signals) as lease:
            lease.rent(key.with_name(f"{key.name}.pub").read_text(encoding="utf-8").strip())
            with _Pod(folder, key, *lease.address()) as pod:
                pod.connect(lease.reachable_until)
                pod.lay_out(spec.mounts, lease.deadline)
                for mount in spec.mounts:
                    if mount.read_only:
                        pod.send(mount)
                packages = _packages(spec, pod)
                pod.send(Bind(str(packages), PACKAGES, read_only=True))
                return _command(spec, pod, signals, lease.deadline, started)


def _command(
    spec: Spec, pod: _Pod, signals: _Signals, deadline: float, started: threading.Event
) -> int:
    """Start the command, serve it until it ends, copy its files here."""
    written = _Written([mount for mount in spec.mounts if not mount.read_only], pod)
    own = private(spec.mounts)
    process = pod.start(spec, own.target if own else "/")
    signals.pod = pod
    started.set()
    fetched, forwarded = time.monotonic(), False
    try:
        while process.poll() is None:
            if time.time() > deadline:
                raise EnvironmentFault(
                    "the pod's time is used up: it has reached max_cost or max_hours",
                    remedy="answers are kept; raise the limit in container.options, then resume",
                )
            due = time.monotonic() - fetched > FETCH_SECONDS
            if own is not None and (due or not forwarded):
                forwarded |= pod.forward(own)
            if due:
                with contextlib.suppress(EnvironmentFault):  # only the last fetch must succeed
                    written.fetch()
                fetched = time.monotonic()
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    if process.returncode == FAILED and pod.lost():
        raise EnvironmentFault("the connection to the pod broke")
    written.fetch(last=True)
    return process.returncode


class _Lease:
    """A pod, from before its request until its deletion is verified."""

    def __init__(self, spec: Spec, signals: _Signals) -> None:
        self._spec, self._signals, self._cache = spec, signals, Path(spec.cache)
        self._key = secret.reveal(spec.options.api_key)
        for name in [name for name, value in os.environ.items() if self._key in value]:
            del os.environ[name]  # no child needs it
        self._api = Api(spec.options.endpoint, self._key)
        self._rented = Rented.by_me()
        self._started_at = time.time()
        self._done = False
        self._guard: subprocess.Popen[bytes]
        self.deadline = 0.0
        """Unix time at which the pod must be gone."""

    def __enter__(self) -> _Lease:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "hpcbench.environments.runpod_guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        with self._guard.stdout as answer:
            if not answer.readline():  # nothing is rented without the guard
                raise EnvironmentFault("the process that guards the pod does not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signals.deaf = True
        assert self._guard.stdin is not None
        try:
            if self._rented.id is not None:
                self._api.give_back(self._rented.id)
                self._rented.close(self._cache)
                self._end()
        except EnvironmentFault as fault:
            if error is None:
                raise
            _say(f"FATAL: {fault}")
        finally:
            # Without the word `done` the guard keeps trying after our end.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._guard.stdin.close()
                self._guard.wait(10 if self._done else 0)

    @property
    def reachable_until(self) -> float:
        """Unix time by which the pod must be reachable."""
        return min(self.deadline, self._started_at + 60 * self._spec.options.start_minutes)

    def rent(self, public_key: str) -> None:
        """Request the pod, and refuse it if it costs too much.

        Raises:
            EnvironmentFault: no pod is available, or not at this price.
        """
        options = self._spec.options
        left = options.max_cost - spent(self._cache, self._rented)
        if left <= 0:
            raise EnvironmentFault(
                f"earlier pods of this worker have cost max_cost = {options.max_cost:g} USD",
                remedy="find out why they ended (see above), then resume, or raise max_cost",
            )
        body: dict[str, Any] = {
            "name": self._rented.name,
            "imageName": self._spec.image,
            "cloudType": options.cloud.upper(),
            "computeType": "GPU" if self._spec.gpus else "CPU",
            "containerDiskInGb": options.disk_gb,
            "volumeInGb": 0,
            "ports": ["22/tcp"],
            "supportPublicIp": True,
            "interruptible": False,
            "env": {"PUBLIC_KEY": public_key},
            "dockerEntrypoint": ["sh", "-c"],
            "dockerStartCmd": [START],
        }
        if self._spec.gpus:
            body |= {"gpuCount": self._spec.gpus, "gpuTypeIds": list(options.gpu_types)}
            body |= {"gpuTypePriority": "custom"}
        if options.registry_login is not None:
            body["containerRegistryAuthId"] = options.registry_login
        self._rented.write(self._cache)
        self._tell(endpoint=options.endpoint, key=self._key, name=self._rented.name)
        with self._signals.waiting():
            try:
                pod = self._api.create(body)
            except ApiFault as fault:
                if not fault.passing:  # a clear refusal: there is no pod to delete
                    self._rented.forget(self._cache)
                    self._end()
                raise
            self._know(id=str(pod["id"]))
        price = _price(pod) or _price(self._api.find(str(pod["id"])) or {})
        hours = _hours(price, options.max_cost, options.max_hours, left)
        self._know(price=price, deadline=self._started_at + 3600 * hours)

    def address(self) -> tuple[str, int]:
        """Address of the pod's sshd, as soon as it is known.

        Raises:
            EnvironmentFault: that takes too long, or the pod disappeared.
        """
        pause, pod = 0.5, str(self._rented.id)
        while True:
            # A new pod may be missing in some of the API's replies.
            new = time.time() - self._started_at < FOUND_SECONDS
            found = self._api.find(pod) or ({} if new else {"desiredStatus": "gone"})
            state = found.get("desiredStatus")
            if state in ("gone", "EXITED"):
                raise EnvironmentFault(f"pod {pod} ended before it could be used: {state}")
            host, port = found.get("publicIp"), (found.get("portMappings") or {}).get("22")
            if state == "RUNNING" and host and port:
                return str(host), int(port)
            if time.time() > self.reachable_until:
                raise EnvironmentFault(
                    f"pod {pod} had no address after {self._spec.options.start_minutes:g} minutes",
                    remedy="a large image needs time: raise container.options.start_minutes of the site",
                )
            time.sleep(pause)
            pause = min(1.5 * pause, 5.0)

    def _know(self, **more: Any) -> None:
        """Record known facts for the guard and other processes."""
        self._rented = self._rented.model_copy(update=more)
        self.deadline = self._rented.deadline or self.deadline
        facts = {"pod" if name == "id" else name: value for name, value in more.items()}
        self._tell(**facts)
        self._rented.write(self._cache)

    def _end(self) -> None:
        """Report that the pod is verified to be gone."""
        self._tell(done=True)
        self._done = True

    def _tell(self, **words: Any) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the guard was killed; we still run
            self._guard.stdin.write(json.dumps(words).encode() + b"\n")
            self._guard.stdin.flush()


class _Pod:
    """The way into a pod: one ssh connection, through which everything goes.

    The pod makes its host key when it starts, and RunPod's API does not report it. So the key is accepted at
    first contact, into a file of this run alone. The address comes from the API over TLS; an attacker who
    redirects packets to it could still pose as the pod, and would get the model and the data.
    """

    def __init__(self, folder: Path, key: Path, host: str, port: int) -> None:
        self.folder = folder
        self.forwarded: set[str] = set()
        there = Host(host, "root", port, identity=str(key), first_contact=folder / "known")
        self._connection = Connection(there, terminal=False, within=folder)

    def __enter__(self) -> _Pod:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for path in self.forwarded:
            Path(path).unlink(missing_ok=True)
        self._connection.close()

    @property
    def ssh(self) -> Sequence[str]:
        """Words before a command line for the pod."""
        return (*self._connection.words(), "pod")

    def connect(self, until: float) -> None:
        """Log in, as soon as the pod's sshd is up.

        Raises:
            EnvironmentFault: not in time.
        """
        while True:
            try:
                return self._connection.connect(seconds=max(1.0, until - time.time()))
            except EnvironmentFault as fault:
                if time.time() > until:
                    raise EnvironmentFault(
                        f"cannot reach the pod over ssh: {fault.message}",
                        remedy="its image must run as root and have sshd, or apt to install it; this "
                        "machine must be allowed to connect to any port",
                    ) from fault
            time.sleep(1)

    def lost(self) -> bool:
        """Whether the connection is gone."""
        return not self._connection.lives()

    def lay_out(self, mounts: Sequence[Bind], deadline: float) -> None:
        """Create folders and empty files, and let the pod delete itself after the deadline.

        Every pod has `runpodctl` and a key for it. This covers a failure of this whole machine.
        """
        folders, files = [PACKAGES], ["/run/hpcbench.pid"]  # empty: nothing runs yet
        for mount in mounts:
            if Path(mount.source).is_dir():
                folders.append(mount.target)
            else:
                folders.append(str(Path(mount.target).parent))
                files.append(mount.target)
        left = max(0, round(deadline + LATE - time.time()))
        end = f'sleep {left}; runpodctl remove pod "$RUNPOD_POD_ID"'
        self._do(
            f". /run/hpcbench.env; {shlex.join(['mkdir', '-p', '--', *folders])} && "
            f"{shlex.join(['touch', '--', *files])} && "
            f"(setsid sh -c {shlex.quote(end)} </dev/null >/dev/null 2>&1 &)"
        )

    def probe(self, image: str) -> Probe:
        """Ask the image's Python about itself."""
        python = shlex.join([*self.ssh, _shell(f"{IMAGE}exec python3 -")])
        # The caller passes -c and the code; the code goes through standard input, which needs no quoting.
        return probe(["sh", "-c", f'printf %s "$2" | {python}', "sh"], image)

    def send(self, mount: Bind) -> None:
        """Copy a file or folder into the pod; a link to the outside becomes a copy of its target."""
        source = f"{mount.source}/" if Path(mount.source).is_dir() else mount.source
        self._rsync("-rlpt", "--copy-unsafe-links", source, f"pod:{mount.target}")

    def fetch(self, mount: Bind, place: Path) -> None:
        """Copy a file or folder from the pod; no links, which could lead anywhere."""
        slash = "/" if Path(mount.source).is_dir() else ""
        self._rsync("-rt", f"pod:{mount.target}{slash}", f"{place}{slash}")

    def start(self, spec: Spec, cwd: str) -> subprocess.Popen[bytes]:
        """Start the command; our standard input becomes its input."""
        process = subprocess.Popen(
            [*self.ssh, _shell(f"{IMAGE}python3 -c {shlex.quote(LAUNCH)}; exit $?")],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us, and we forward it
        )
        env = {"PYTHONDONTWRITEBYTECODE": "1", **spec.env}
        first = json.dumps({"argv": spec.argv, "env": env, "cwd": cwd})
        assert process.stdin is not None
        threading.Thread(
            target=_pass_on, args=(first.encode() + b"\n", process.stdin), daemon=True
        ).start()
        return process

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        name = signal.Signals(number).name.removeprefix("SIG")
        pid = "/run/hpcbench.pid"
        until_there = f"for n in 1 2 3 4 5; do test -s {pid} && break; sleep 1; done"
        self._run([*self.ssh, _shell(f"{until_there}; kill -s {name} $(cat {pid})")])

    def forward(self, own: Bind) -> bool:
        """Forward the sockets of the command's private folder to here; returns whether there is one."""
        listed = self._run(
            [*self.ssh, shlex.join(["find", own.target, "-maxdepth", "1", "-type", "s"])]
        )
        for there in listed.stdout.splitlines():
            name = there.rpartition("/")[2]
            here = f"{own.source}/{name}"
            if here not in self.forwarded and re.fullmatch(r"[\w.-]+", name):
                self.forwarded.add(here)
                self._connection.forward(here, there)
        return bool(self.forwarded)

    def _do(self, script: str) -> None:
        done = self._run([*self.ssh, _shell(script)])
        if done.returncode:
            raise EnvironmentFault(f"cannot prepare the pod's folders: {last_words(done.stderr)}")

    def _rsync(self, *words: str) -> None:
        ssh = shlex.join(self._connection.words())
        done = self._run(["rsync", "-s", "--timeout=300", "-e", ssh, *words], limit=None)
        if done.returncode not in (0, 24):  # 24: files disappeared meanwhile
            first = (done.stderr.strip() or "it printed no message").splitlines()[0]
            raise EnvironmentFault(f"rsync with the pod failed: {first}")

    def _run(
        self, argv: Sequence[str], limit: float | None = 60.0
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=limit, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, FAILED, "", "no answer")


class _Written:
    """The command's files, copied here repeatedly.

    Folders and files start empty in the pod. A file that exists here already gets new text appended: it is a
    log to which we, or the worker, write as well.
    """

    def __init__(self, mounts: Sequence[Bind], pod: _Pod) -> None:
        self.mounts, self._pod = mounts, pod
        self._appended: dict[Path, int] = {}
        self._copied: dict[Path, tuple[int, int]] = {}

    def fetch(self, last: bool = False) -> None:
        """Copy new content."""
        for number, mount in enumerate(self.mounts):
            staged = self._pod.folder / f"back-{number}"
            self._pod.fetch(mount, staged)
            for file in [staged] if staged.is_file() else sorted(staged.rglob("*")):
                here = Path(mount.source, file.relative_to(staged))
                if file.is_dir():
                    here.mkdir(exist_ok=True)
                elif here in self._appended or (here not in self._copied and here.exists()):
                    self._append(file, here, last)
                else:
                    self._copy(file, here)

    def _append(self, file: Path, here: Path, last: bool) -> None:
        begin = self._appended.setdefault(here, 0)
        with file.open("rb") as opened:
            opened.seek(begin)
            new = opened.read()
        if not last:
            new = new[: new.rfind(b"\n") + 1]  # other processes write lines to it, too
        with here.open("ab") as log:
            log.write(new)
        self._appended[here] = begin + len(new)

    def _copy(self, file: Path, here: Path) -> None:
        facts = file.stat()
        if self._copied.get(here) != (facts.st_size, facts.st_mtime_ns):
            with replacing(here) as temporary:
                shutil.copy2(file, temporary)
            self._copied[here] = (facts.st_size, facts.st_mtime_ns)


def _key(spec: Spec, folder: Path) -> Path:
    """The private key file, generated if the user names none."""
    if spec.options.ssh_key is not None:
        return Path(spec.options.ssh_key).expanduser()
    key = folder / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hpcbench", "-f", str(key)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return key


def _packages(spec: Spec, pod: _Pod) -> Path:
    """Packages for the Python of the image, which is probed once."""
    cache = Path(spec.cache)
    stored = cache / "runpod" / f"{spec.image.rpartition(':')[2]}.probe.json"
    probed = probed_once(stored, lambda: pod.probe(spec.image))
    return packages_for(probed, cache, spec.requirements)


def _price(pod: Mapping[str, Any]) -> float:
    """USD an hour; the API gives it as text."""
    try:
        return float(pod.get("costPerHr") or 0)
    except ValueError:
        return 0.0


def _hours(price: float, max_cost: float, max_hours: float | None, left: float) -> float:
    """Allowed hours of a pod at that price, with `left` USD remaining."""
    if price <= 0:
        raise EnvironmentFault(
            "RunPod names no price for the pod, so hpcbench cannot keep max_cost"
        )
    if max_hours is not None and price * max_hours > max_cost:
        raise EnvironmentFault(
            f"the pod costs {price:.2f} USD an hour: max_hours = {max_hours:g} would cost "
            f"{price * max_hours:.2f} USD, but max_cost is {max_cost:g} USD",
            remedy="raise max_cost, lower max_hours, or name cheaper gpu_types",
        )
    return min(max_hours or left / price, left / price)


def _shell(script: str) -> str:
    """A script as one command line, for any login shell of root."""
    return shlex.join(["sh", "-c", script])


def _pass_on(first: bytes, pipe: IO[bytes]) -> None:
    """Forward our standard input, and its end, to the command's."""
    data = first
    with contextlib.suppress(OSError):
        while data:
            pipe.write(data)
            pipe.flush()
            data = os.read(0, 65536)
    with contextlib.suppress(OSError):
        pipe.close()


def _until_alone(started: threading.Event, parent: int) -> None:
    """Stop the preparation if the worker is gone, even by kill -9; later the end of its pipe says so."""
    while not started.wait(1):
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def _say(line: str) -> None:
    print(secret.mask(line), file=sys.stderr, flush=True)  # noqa: T201 - the worker's log


if __name__ == "__main__":
    sys.exit(main())
