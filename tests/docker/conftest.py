"""podman's service and Docker's daemon, each with a store, a socket and a configuration of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import pytest

from hpcbench import environments
from hpcbench.environments import docker_run
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite
from tests.cluster.lab import Lab
from tests.cluster.packages import install_packages
from tests.cluster.system import answers, run
from tests.conftest import by_digest, unavailable

PACKAGES = ("podman", "runc", "catatonit", "uidmap", "fuse-overlayfs", "netavark")

CONTAINERS = """\
[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
{engine}
"""
REGISTRIES = """\
unqualified-search-registries = []
[[registry]]
location = "127.0.0.1:5055"
insecure = {insecure}
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


@dataclass(frozen=True)
class Service:
    """A server that answers Docker's requests, with its configuration."""

    folder: Path
    store: Path
    """Where images and containers are kept."""

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    def site(self, **more: object) -> ContainerSite:
        """Site profile that names this server."""
        reported = {"manager": "docker", "options": {"socket": self.socket}}
        return ContainerSite.model_validate(
            {**reported, "insecure_registries": ["127.0.0.1:5055"], **more}
        )

    def containers(self) -> list[str]:
        """Names of all that there are, running or not."""
        api = docker_run.connect(self.socket).api
        for _ in range(20):  # podman fails if one goes while it looks
            with contextlib.suppress(docker.errors.APIError):
                return [name for one in api.containers(all=True) for name in one["Names"]]
            time.sleep(0.1)
        raise AssertionError("podman does not list its containers")

    def serving(self, argv: list[str], env: dict[str, str]) -> Iterator[None]:
        """Run it."""
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            end = time.monotonic() + 60
            while not answers(Path(self.socket)):
                if process.poll() is not None or time.monotonic() > end:
                    unavailable(f"{argv[0]} does not serve: {(self.folder / 'log').read_text()}")
                time.sleep(0.05)
            Path(self.socket).chmod(0o666)
            yield
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True)
class Dockerd(Service):
    """Docker's daemon, which leaves this machine's network alone."""

    def serve(self) -> Iterator[None]:
        reported = {
            "hosts": [f"unix://{self.socket}"],
            "data-root": str(self.store),
            "exec-root": str(self.folder / "run"),
            "pidfile": str(self.folder / "pid"),
            "insecure-registries": ["127.0.0.1:5055"],
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
        }
        (self.folder / "daemon.json").write_text(json.dumps(reported))
        argv = ["dockerd", "--config-file", str(self.folder / "daemon.json")]
        # There may be another Docker on this machine, whose containerd is then used.
        argv += ["--containerd-namespace=hpcbench-tests"]
        argv += ["--containerd-plugins-namespace=hpcbench-tests-plugins"]
        yield from self.serving(argv, dict(os.environ))


@dataclass(frozen=True)
class Podman(Service):
    """podman's service; several may have one store."""

    engine: str = ""
    """Further lines of containers.conf."""
    insecure: bool = True
    """Whether it knows that the registry has no TLS."""

    @property
    def env(self) -> dict[str, str]:
        names = ("CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF")
        # Layers are unpacked in TMPDIR first.
        return {
            **os.environ,
            **{one: str(self.folder / one) for one in names},
            "TMPDIR": str(self.store),
        }

    def command(self, *words: str) -> None:
        """A command of podman's own."""
        run(["podman", *words], what=f"podman {words[0]}", env=self.env)

    def serve(self) -> Iterator[None]:
        """Run its service."""
        files = {
            "CONTAINERS_CONF": CONTAINERS.format(engine=self.engine),
            "CONTAINERS_REGISTRIES_CONF": REGISTRIES.format(insecure=str(self.insecure).lower()),
            "CONTAINERS_STORAGE_CONF": STORAGE.format(folder=self.store),
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
        argv = ["podman", "system", "service", "--time=0", f"unix://{self.socket}"]
        yield from self.serving(argv, self.env)


@pytest.fixture(scope="session")
def image() -> str:
    """Reference of the small image with Python, by digest; it needs no Slurm."""
    return by_digest(Lab.current().python_image)


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that other users may enter, with a short name, as sockets want it."""
    path = Path(tempfile.mkdtemp(prefix="hpcbench-podman-"))
    path.chmod(0o755)
    yield path
    # podman leaves its store mounted on itself, Docker its network.
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounted):
        if Path(mount).is_relative_to(path):
            subprocess.run(["umount", "--lazy", mount], check=True)
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def podman(folder: Path) -> Iterator[Podman]:
    try:
        install_packages(PACKAGES)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no podman: {error}")
    (folder / "store").mkdir()
    (folder / "service").mkdir()
    served = Podman(folder / "service", folder / "store")
    for _ in served.serve():
        yield served


@pytest.fixture(scope="session")
def dockerd(folder: Path) -> Iterator[Dockerd]:
    try:
        if shutil.which("dockerd") is None:
            install_packages(("docker.io", "tini"))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no Docker: {error}")
    (folder / "dockerd").mkdir()
    served = Dockerd(folder / "dockerd", folder / "dockerd-store")
    for _ in served.serve():
        yield served


@pytest.fixture
def another(
    podman: Podman, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Podman]]:
    """Starts a further service, configured in another way."""

    def start(name: str, **changes: object) -> Podman:
        (folder / name).mkdir()
        reported = {"folder": folder / name, "store": podman.store, **changes}
        served = Podman(**reported)  # type: ignore[arg-type]
        running = served.serve()
        next(running)
        request.addfinalizer(lambda: next(running, None))
        return served

    return start


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def prepared(podman: Podman, image: str, cache: Path) -> Environment:
    """The image in podman's store."""
    return environments.prepare(image, cache, podman.site())


@pytest.fixture(autouse=True)
def _no_docker_of_the_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)


def as_stranger(function: Callable[[], int]) -> tuple[int, str]:
    """Run something as a user without rights; its result, and what it printed.

    In a fork: the tests' own Python may lie where that user cannot go.
    """
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                for number in (1, 2):
                    os.dup2(output.fileno(), number)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                code = function()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return code, output.read().decode()
