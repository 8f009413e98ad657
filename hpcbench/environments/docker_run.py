"""`python -m hpcbench.environments.docker_run PROGRAM …`: a program in a container, as if it were our child.

Containers are children of Docker's daemon: a signal to us, the end of our stdin or a kill -9 would not reach
them. This process stands in for the program: it hands on output, input and signals, ends with the program's
exit code, and has the container removed whatever becomes of itself. What it is to run is told by two kinds
of environment variables: SPEC, without secrets, and GIVEN + NAME for each variable of the container.

Its own exit codes are Docker's: 125 no container could be made, 126 the program cannot be executed, 127 the
image has no such program. A program may end with them, too; then nothing of ours stands in the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcbench.environments.credentials import login_for
from hpcbench.environments.failures import recognise
from hpcbench.environments.oci import Reference
from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint

SPEC = "HPCBENCH_DOCKER"
GIVEN = "HPCBENCH_DOCKER_ENV_"

USER, RUNNER = "hpcbench.user", "hpcbench.runner"
"""Labels of a container: whose it is, and the process that stands in for it."""

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED = (*ENDING, signal.SIGUSR2)

GRACE = 20.0
"""Seconds a program has to end after SIGTERM or SIGINT."""

PULL_SECONDS = 3600.0
"""Longest silence of Docker while it fetches an image: podman says nothing until it is there."""

NO_PROGRAM = re.compile(
    r'exec: "[^"]*": (executable file not found|stat .*no such file)'
    r"|executable file `[^`]*` not found|attempted to invoke a command that was not found"
)
NOT_EXECUTABLE = re.compile(r'exec: "[^"]*": permission denied|OCI permission denied')


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run a program in."""

    socket: str
    """Docker's, on this machine."""
    image: str
    """`HOST/REPOSITORY@DIGEST`, or the id of an image that came from a file."""
    reference: str
    """Where to have it from if it is not there."""
    mounts: Sequence[tuple[str, str, bool]]
    """Source, target, whether read-only."""
    names: Sequence[str]
    """Variables of the container; their values are in our own environment, as GIVEN + name."""
    workdir: str | None = None
    network: str = "host"
    gpus: Sequence[str] = ()
    """Which, as the driver counts them on this machine."""
    gpu_maker: str = "nvidia"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables by which a runner is told."""
        given = {GIVEN + name: env[name] for name in self.names}
        return {SPEC: json.dumps(asdict(self)), **given}


def find_socket(option: str | None) -> str:
    """Docker's socket: the site's, or where Docker and podman have it.

    Raises:
        EnvironmentFault: there is none, or Docker is on another machine.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if option is None and host and not host.startswith("unix://"):
        raise EnvironmentFault(
            f"DOCKER_HOST is {host}: only a Docker on this machine can mount its folders",
            remedy="unset DOCKER_HOST, or name a socket as container.options.socket in the site profile",
        )
    if named := option or host.removeprefix("unix://"):
        places = [os.path.expandvars(named)]
    else:
        places = ["/var/run/docker.sock"]
        if runtime := os.environ.get("XDG_RUNTIME_DIR"):
            places.append(f"{runtime}/podman/podman.sock")
    for place in places:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(Path(place).stat().st_mode):
                return place
    raise EnvironmentFault(
        f"there is no Docker on this machine: no socket at {' or '.join(places)}",
        remedy="start Docker, or `systemctl --user start podman.socket`; another place: "
        "container.options.socket in the site profile",
    )


def connect(path: str, timeout: float = 60) -> Any:
    """Docker's client.

    Raises:
        EnvironmentFault: the SDK is missing, or Docker does not answer us.
    """
    try:
        import docker  # heavy, and only an extra
    except ImportError as error:
        raise EnvironmentFault(
            "Python's package for Docker is not installed", remedy=install_hint("docker")
        ) from error
    try:
        return docker.DockerClient(base_url=f"unix://{path}", timeout=timeout)
    except docker.errors.DockerException as error:
        if "Permission denied" in str(error):
            raise EnvironmentFault(
                f"you may not use Docker: permission denied on {path}",
                remedy="your admin must put you into the docker group, or "
                "`systemctl --user start podman.socket`",
            ) from error
        raise EnvironmentFault(
            f"Docker does not answer at {path}: {error}",
            remedy="does it run? `systemctl status docker`, `systemctl --user start podman.socket`",
        ) from error


def have_image(path: str, image: str, reference: str) -> bool:
    """Have an image in Docker's own store, which every machine has for itself; whether it was fetched now.

    Raises:
        EnvironmentFault: the registry, the file or the disk does not let us.
    """
    client = connect(path, PULL_SECONDS)
    import docker

    try:
        client.images.get(image)
        return False
    except docker.errors.ImageNotFound:
        pass
    if reference.startswith("docker-archive:"):
        load(path, Path(reference.partition(":")[2]))
        return True
    try:
        _pull(client, image)
        client.images.get(image)
    except (docker.errors.DockerException, OSError) as error:
        raise _not_fetched(image, str(error)) from error
    return True


def load(path: str, file: Path) -> str:
    """Put an archive into Docker's own store; returns the image's id.

    Raises:
        EnvironmentFault: it holds no image or several, or the disk does not let us.
    """
    client = connect(path, PULL_SECONDS)
    import docker

    try:
        with file.open("rb") as opened:
            found = client.images.load(opened)
    except (docker.errors.DockerException, OSError) as error:
        raise _not_fetched(str(file), str(error)) from error
    if len(found) != 1:
        raise EnvironmentFault(
            f"{file} holds {len(found)} images", remedy="`docker save` one image into a file"
        )
    return str(found[0].id)


def engine(client: Any) -> tuple[str, str]:
    """`Docker` or `podman`, and its version."""
    told = client.version()
    names = [one["Name"] for one in told.get("Components") or ()]
    is_podman = any("podman" in name.lower() for name in names)
    return "podman" if is_podman else "Docker", str(told["Version"])


def _pull(client: Any, image: str) -> None:
    named = Reference.parse(f"docker://{image}")
    login = login_for(named.host, named.repository)
    auth = None
    if login is not None:
        auth = (
            {"identitytoken": login.password}
            if login.is_token
            else {"username": login.username, "password": login.password}
        )
    # `images.pull` of the SDK drops what goes wrong on the way.
    for line in client.api.pull(image, stream=True, decode=True, auth_config=auth):
        if "error" in line:
            raise _not_fetched(image, str(line["error"]))


def _not_fetched(image: str, said: str) -> EnvironmentFault:
    known = recognise(said, building=True)
    if known is not None and "space" in known.what:
        remedy = "make room where Docker keeps its images: `docker system df`, `docker image prune`"
    elif "HTTP response to HTTPS client" in said:
        remedy = (
            "Docker itself must know that the registry has no TLS: insecure-registries in "
            "/etc/docker/daemon.json, or podman's registries.conf"
        )
    else:
        remedy = known.remedy if known else "try `docker pull` by hand"
    what = f"{known.what}: " if known else ""
    return EnvironmentFault(f"Docker cannot fetch {image}: {what}{said}", remedy=remedy)


def sweep(client: Any) -> None:
    """Remove this user's containers whose runner is gone without having removed them.

    That takes a kill of runner and guard at once, as at the end of a Slurm job, or a crash of the machine.
    """
    import docker

    mine = {"label": f"{USER}={os.getuid()}"}
    try:
        every = client.api.containers(all=True, filters=mine)
    except (docker.errors.DockerException, OSError):  # podman, if one goes while it looks
        return
    for found in every:
        place, _, process = found["Labels"].get(RUNNER, "").partition("/")
        pid = process.partition(".")[0]
        # Of runners elsewhere (another host's daemon, another container's processes) we know nothing.
        if place == _place() and pid.isdigit() and _process(int(pid)) != process:
            _remove(client, found["Id"])


def _place() -> str:
    return f"{socket.gethostname()}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _process(pid: int) -> str:
    """`PID.STARTED`: numbers come again, both together do not; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid}.{fields[19]}"


def _remove(client: Any, name: str) -> None:
    """Kill a container, if need be, and remove it; podman refuses while it is busy with it."""
    import docker

    for _ in range(20):
        try:
            with contextlib.suppress(docker.errors.APIError):  # podman's own way is to wait 10 s
                client.api.kill(name)
            client.api.remove_container(name, force=True, v=True)
            return
        except docker.errors.NotFound:
            return
        except (docker.errors.DockerException, OSError):
            time.sleep(0.25)


def _guard(path: str, name: str) -> int:
    """Start a process that removes the container should this one be killed.

    Returns:
        The pipe by which it is told that it need not; the pipe's end alone tells that we are gone.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    with contextlib.suppress(BaseException):  # nobody is left to be told
        os.close(writing)
        os.setsid()  # who kills our process group does not mean this one
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # nobody is to wait for the end of a pipe because we hold it
            os.dup2(null, number)
        if not os.read(reading, 1):
            _remove(connect(path), name)
    os._exit(0)


def main(argv: Sequence[str]) -> int:
    """Run a program as the environment says; returns its exit code."""
    # Blocked from the start, and so in all threads: one of them takes the signals one by one.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    spec = Spec(**json.loads(os.environ[SPEC]))
    name = f"hpcbench-{secrets.token_hex(8)}"
    try:
        client = connect(spec.socket)
        guard = _guard(spec.socket, name)
    except EnvironmentFault as error:
        return _failed(125, str(error))
    running = threading.Event()
    threading.Thread(
        target=_pass_signals, args=(spec.socket, name, running), daemon=True
    ).start()  # fmt: skip
    try:
        return _run(client, spec, name, argv, running)
    finally:
        _remove(client, name)
        os.write(guard, b".")


def _run(
    client: Any, spec: Spec, name: str, argv: Sequence[str], running: threading.Event
) -> int:  # fmt: skip
    import docker

    try:
        sweep(client)
        have_image(spec.socket, spec.image, spec.reference)
        _create(client, spec, name, argv)
        # Before it starts, so that no word of it is lost.
        both = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        attached = client.api.attach_socket(name, params=both)
        connection: socket.socket = getattr(attached, "_sock", attached)
        connection.settimeout(None)
        client.api.start(name)
    except EnvironmentFault as error:
        return _failed(125, str(error))
    except (docker.errors.DockerException, OSError) as error:
        return _failed(*_explained(error, argv[0]))
    running.set()
    threading.Thread(target=_pass_stdin, args=(connection,), daemon=True).start()
    try:
        _pass_output(connection)
        return int(client.api.wait(name, timeout=None)["StatusCode"])
    except BrokenPipeError:  # nobody listens to us any more
        return 128 + signal.SIGPIPE
    except (docker.errors.DockerException, OSError) as error:
        return _failed(125, f"Docker was lost while the container ran: {error}")


def _create(client: Any, spec: Spec, name: str, argv: Sequence[str]) -> None:
    import docker
    from docker.types import LogConfig, Mount

    # Without root, the container's root is the caller; with it, the caller must be named.
    rootless = any("rootless" in one for one in client.info().get("SecurityOptions") or ())
    whose: dict[str, Any] = {"user": "0:0"}
    if not rootless:
        whose = {
            "user": f"{os.getuid()}:{os.getgid()}",
            "group_add": [str(group) for group in os.getgroups()],
        }
    image = client.api.inspect_image(spec.image)
    told: dict[str, Any] = {
        "name": name,
        "entrypoint": [argv[0]],  # an image's own would take the program for its arguments
        "command": list(argv[1:]),
        "environment": {one: os.environ[GIVEN + one] for one in spec.names},
        "working_dir": spec.workdir,
        "mounts": [
            Mount(target, source, type="bind", read_only=read_only)
            for source, target, read_only in spec.mounts
        ],
        "stdin_open": True,
        "read_only": True,
        # By default nothing in a tmpfs may be executed, which engines do with what they compile.
        "tmpfs": {place: "exec,mode=1777" for place in ("/tmp", "/var/tmp")},
        "shm_size": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,  # as on a host
        "network_mode": spec.network,
        "cap_drop": ["ALL"],
        # SELinux would want all that is mounted relabelled, also what others own.
        "security_opt": ["no-new-privileges", "label=disable"],
        "labels": {
            "hpcbench.run": name,
            USER: str(os.getuid()),
            RUNNER: f"{_place()}/{_process(os.getpid())}",
        },
        "log_config": LogConfig(type="none"),
        # Where there is none, podman 4 would start a timer for the one that is not to be.
        "healthcheck": {"test": ["NONE"]} if image["Config"].get("Healthcheck") else None,
        **whose,
        **_gpus(*engine(client), spec),
    }
    try:
        # As process 1 a program would not die of signals it does not handle, nor bury orphans.
        client.containers.create(spec.image, init=True, **told)
    except docker.errors.APIError as error:
        if "init binary" not in str(error):
            raise
        client.containers.create(spec.image, **told)


def _gpus(name: str, version: str, spec: Spec) -> dict[str, Any]:
    from docker.types import DeviceRequest

    if not spec.gpus:
        return {}
    if spec.gpu_maker == "amd":
        return {"devices": ["/dev/kfd:/dev/kfd:rwm", "/dev/dri:/dev/dri:rwm"]}
    if name == "Docker":
        asked = DeviceRequest(device_ids=list(spec.gpus), capabilities=[["gpu"]])
        return {"device_requests": [asked]}
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < (5, 4):  # it would give none and say nothing
        raise EnvironmentFault(
            f"podman {version} gives no GPU through its socket",
            remedy="podman 5.4 or newer, Docker, or Apptainer",
        )
    names = [f"nvidia.com/gpu={one}" for one in spec.gpus]
    return {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}


def _pass_output(connection: socket.socket) -> None:
    """Copy what the program says to our own stdout and stderr, as it comes."""
    with connection.makefile("rb") as stream:
        while len(header := stream.read(8)) == 8:
            said = memoryview(stream.read(int.from_bytes(header[4:], "big")))
            while said:
                said = said[os.write(2 if header[0] == 2 else 1, said) :]


def _pass_stdin(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the program does not read any more
        while data := os.read(0, 1 << 16):
            connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def _pass_signals(path: str, name: str, running: threading.Event) -> None:
    while True:
        number = signal.sigwait(PASSED)
        if number in ENDING and not running.is_set():
            os._exit(128 + number)  # the guard removes what there is
        running.wait()
        _signal(path, name, number)
        if number in ENDING:
            kill = threading.Timer(GRACE, _signal, (path, name, signal.SIGKILL))
            kill.daemon = True
            kill.start()


def _signal(path: str, name: str, number: int) -> None:
    import docker

    with contextlib.suppress(docker.errors.DockerException, EnvironmentFault, OSError):
        connect(path).api.kill(name, signal.Signals(number).name)  # or it has just ended


def _explained(error: Exception, program: str) -> tuple[int, str]:
    said = str(getattr(error, "explanation", None) or error)
    if NO_PROGRAM.search(said):
        return 127, f"the image has no program {program}: {said}"
    if NOT_EXECUTABLE.search(said):
        return 126, f"the image's {program} cannot be executed: {said}"
    known = recognise(said)
    what = f"{known.what}: {said} ({known.remedy})" if known else said
    return 125, f"Docker cannot start the container: {what}"


def _failed(code: int, why: str) -> int:
    print(f"hpcbench: {' '.join(why.split())}", file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
