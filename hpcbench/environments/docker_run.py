"""`python -m hpcbench.environments.docker_run PROGRAM …`: runs a program in a container like a child process.

Containers are children of Docker's daemon: a signal to us, the end of our stdin or a kill -9 would not reach
them. This process represents the program: it forwards output, input and signals, ends with the program's exit
code, and has the container removed however it ends itself. Two kinds of environment variables say what to
run: SPEC, without secrets, and GIVEN + NAME for each variable of the container.

Its own exit codes are Docker's: 125 the container could not be created, 126 the program cannot be executed,
127 the image has no such program. A program may end with them, too; then the log has no line of ours.
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
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.process_identity import started
from hpcbench.installed import install_hint
from hpcbench.schema.image_reference import Reference

SPEC = "HPCBENCH_DOCKER"
GIVEN = "HPCBENCH_DOCKER_ENV_"

USER, RUNNER = "hpcbench.user", "hpcbench.runner"
"""Labels of a container: its user, and the runner process."""

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED = (*ENDING, signal.SIGUSR2)

GRACE = 20.0
"""Seconds between SIGTERM or SIGINT and the kill of a program."""

PULL_SECONDS = 3600.0
"""Longest silence of Docker while it fetches an image: podman says nothing until the fetch ends."""

NO_PROGRAM = re.compile(
    r'exec: "[^"]*": (executable file not found|stat .*no such file)'
    r"|executable file `[^`]*` not found|attempted to invoke a command that was not found"
)
NOT_EXECUTABLE = re.compile(r'exec: "[^"]*": permission denied|OCI permission denied')


@dataclass(frozen=True, slots=True)
class Spec:
    """The container of a program."""

    socket: str
    """Path of Docker's socket on this machine."""
    image: str
    """`HOST/REPOSITORY@DIGEST`, or the id of an image from a file."""
    reference: str
    """Source of the image if it is not in the store."""
    mounts: Sequence[tuple[str, str, bool]]
    """Source, target, whether read-only."""
    names: Sequence[str]
    """Names of the container's variables; their values are in our own environment, as GIVEN + name."""
    workdir: str | None = None
    network: str = "host"
    gpus: Sequence[str] = ()
    """The GPUs, by the driver's numbers on this machine."""
    gpu_maker: str = "nvidia"

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables that instruct a runner."""
        given = {GIVEN + name: env[name] for name in self.names}
        return {SPEC: json.dumps(asdict(self)), **given}


def find_socket(option: str | None) -> str:
    """Docker's socket: the site's, or the usual one of Docker or podman.

    Raises:
        EnvironmentFault: there is no socket, or Docker is on another machine.
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
        remedy="start Docker, or run `systemctl --user start podman.socket`; for another socket set "
        "container.options.socket in the site profile",
    )


def connect(path: str, timeout: float = 60) -> Any:
    """Docker's client.

    Raises:
        EnvironmentFault: the SDK is missing, or Docker refuses us.
    """
    try:
        import docker  # slow to import, and only an extra
    except ImportError as error:
        raise EnvironmentFault(
            "Python's package for Docker is not installed", remedy=install_hint("docker")
        ) from error
    try:
        return docker.DockerClient(base_url=f"unix://{path}", timeout=timeout)
    except docker.errors.DockerException as error:
        if "Permission denied" in str(error):
            raise EnvironmentFault(
                f"no access to Docker: permission denied on {path}",
                remedy="ask your administrator to add you to the docker group, or run "
                "`systemctl --user start podman.socket`",
            ) from error
        raise EnvironmentFault(
            f"Docker does not answer at {path}: {error}",
            remedy="check `systemctl status docker`, or run `systemctl --user start podman.socket`",
        ) from error


def have_image(path: str, image: str, reference: str) -> bool:
    """Put an image into Docker's own store, which each machine has; returns whether it was fetched now.

    Raises:
        EnvironmentFault: the registry, the file or the disk prevents it.
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
        EnvironmentFault: it holds no image or several, or the disk prevents it.
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
    version = client.version()
    names = [one["Name"] for one in version.get("Components") or ()]
    is_podman = any("podman" in name.lower() for name in names)
    return "podman" if is_podman else "Docker", str(version["Version"])


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
    # The SDK's `images.pull` hides errors during the fetch.
    for line in client.api.pull(image, stream=True, decode=True, auth_config=auth):
        if "error" in line:
            raise _not_fetched(image, str(line["error"]))


def _not_fetched(image: str, said: str) -> EnvironmentFault:
    known = recognise(said, building=True)
    if known is not None and "space" in known.what:
        remedy = (
            "free space where Docker keeps its images: `docker system df`, `docker image prune`"
        )
    elif "HTTP response to HTTPS client" in said:
        remedy = (
            "tell Docker that the registry has no TLS: insecure-registries in "
            "/etc/docker/daemon.json, or podman's registries.conf"
        )
    else:
        remedy = known.remedy if known else "try `docker pull` by hand"
    what = f"{known.what}: " if known else ""
    return EnvironmentFault(f"Docker cannot fetch {image}: {what}{said}", remedy=remedy)


def sweep(client: Any) -> None:
    """Remove this user's containers whose runner ended without removing them.

    The causes: runner and guard were killed together, as at the end of a Slurm job, or the machine crashed.
    """
    import docker

    mine = {"label": f"{USER}={os.getuid()}"}
    try:
        every = client.api.containers(all=True, filters=mine)
    except (docker.errors.DockerException, OSError):  # podman, if one ends meanwhile
        return
    for found in every:
        place, _, process = found["Labels"].get(RUNNER, "").partition("/")
        pid = process.partition(".")[0]
        # Runners elsewhere (another host's daemon, another container's processes) cannot be checked.
        if place == _place() and pid.isdigit() and _process(int(pid)) != process:
            _remove(client, found["Id"])


def _place() -> str:
    return f"{socket.gethostname()}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _process(pid: int) -> str:
    """`PID.STARTED`: process ids are reused, the pair is not; empty if there is no such process."""
    began = started(pid)
    return f"{pid}.{began}" if began is not None else ""


def _remove(client: Any, name: str) -> None:
    """Kill a container, if it runs, and remove it; podman refuses while it is busy with the container."""
    import docker

    for _ in range(20):
        try:
            with contextlib.suppress(docker.errors.APIError):  # podman's own stop waits 10 s
                client.api.kill(name)
            client.api.remove_container(name, force=True, v=True)
            return
        except docker.errors.NotFound:
            return
        except (docker.errors.DockerException, OSError):
            time.sleep(0.25)


def _guard(path: str, name: str) -> int:
    """Start a process that removes the container if this process is killed.

    Returns:
        The pipe that cancels the removal; if the pipe ends without a message, this process has ended.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    with contextlib.suppress(BaseException):  # no process is left to report to
        os.close(writing)
        os.setsid()  # a kill of our process group must not reach the guard
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # an open pipe in the guard would let its reader wait for ever
            os.dup2(null, number)
        if not os.read(reading, 1):
            _remove(connect(path), name)
    os._exit(0)


def main(argv: Sequence[str]) -> int:
    """Run a program according to the environment's variables; returns its exit code."""
    # Blocked from the start, and so in all threads: one thread takes the signals one by one.
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
        # Attached before the start, so that no output is lost.
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
    except BrokenPipeError:  # our output has no reader any more
        return 128 + signal.SIGPIPE
    except (docker.errors.DockerException, OSError) as error:
        return _failed(125, f"the connection to Docker broke while the container ran: {error}")


def _create(client: Any, spec: Spec, name: str, argv: Sequence[str]) -> None:
    import docker
    from docker.types import LogConfig, Mount

    # Without root, the container's root is the caller; with root, the caller must be named.
    rootless = any("rootless" in one for one in client.info().get("SecurityOptions") or ())
    whose: dict[str, Any] = {"user": "0:0"}
    if not rootless:
        whose = {
            "user": f"{os.getuid()}:{os.getgid()}",
            "group_add": [str(group) for group in os.getgroups()],
        }
    image = client.api.inspect_image(spec.image)
    options: dict[str, Any] = {
        "name": name,
        "entrypoint": [argv[0]],  # else the image's own entry point gets the program
        "command": list(argv[1:]),
        "environment": {one: os.environ[GIVEN + one] for one in spec.names},
        "working_dir": spec.workdir,
        "mounts": [
            Mount(target, source, type="bind", read_only=read_only)
            for source, target, read_only in spec.mounts
        ],
        "stdin_open": True,
        "read_only": True,
        # By default nothing in a tmpfs may be executed, but engines execute the code they compile there.
        "tmpfs": {place: "exec,mode=1777" for place in ("/tmp", "/var/tmp")},
        "shm_size": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,  # as on a host
        "network_mode": spec.network,
        "cap_drop": ["ALL"],
        # With SELinux, every mounted file would have to be relabelled, also files of other users.
        "security_opt": ["no-new-privileges", "label=disable"],
        "labels": {
            "hpcbench.run": name,
            USER: str(os.getuid()),
            RUNNER: f"{_place()}/{_process(os.getpid())}",
        },
        "log_config": LogConfig(type="none"),
        # For a container without a health check, podman 4 would start a timer for the disabled one.
        "healthcheck": {"test": ["NONE"]} if image["Config"].get("Healthcheck") else None,
        **whose,
        **_gpus(*engine(client), spec),
    }
    try:
        # As process 1 a program would not die of signals it does not handle, nor reap orphans.
        client.containers.create(spec.image, init=True, **options)
    except docker.errors.APIError as error:
        if "init binary" not in str(error):
            raise
        client.containers.create(spec.image, **options)


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
    if numbers < (5, 4):  # it would give no GPU and report nothing
        raise EnvironmentFault(
            f"podman {version} provides no GPU through its socket",
            remedy="use podman 5.4 or newer, Docker, or Apptainer",
        )
    names = [f"nvidia.com/gpu={one}" for one in spec.gpus]
    return {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}


def _pass_output(connection: socket.socket) -> None:
    """Copy the program's output to our own stdout and stderr, as it arrives."""
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
            os._exit(128 + number)  # the guard removes the container
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
        return 126, f"the image's {program} is not executable: {said}"
    known = recognise(said)
    what = f"{known.what}: {said} ({known.remedy})" if known else said
    return 125, f"Docker cannot start the container: {what}"


def _failed(code: int, why: str) -> int:
    print(f"hpcbench: {' '.join(why.split())}", file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
