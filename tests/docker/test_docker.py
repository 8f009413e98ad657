"""Docker's images and containers, by Docker's daemon and by podman's service."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.environments import docker_run
from hpcbench.environments.plugin_packages import for_cpus
from hpcbench.environments.sif import Program
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.evaluation.image_scoring import ImageScorer
from hpcbench.installed import own_requirements
from hpcbench.metrics.text import Anls
from hpcbench.plugins import Environment
from hpcbench.schema.records import Reading
from hpcbench.schema.site import ContainerSite, Site
from hpcbench.scorer.handover import Wanted
from hpcbench.scorer.one import Scorer
from hpcbench.submit.scoring_images import OF_METRICS
from tests.cluster.lab import Lab
from tests.cluster.system import wait_until, with_descendants
from tests.docker.conftest import Dockerd, Podman, Service, as_stranger
from tests.environments_contract import EnvironmentContract, Subject, wait_until_nothing_is_left
from tests.unit.small import sample

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

NO_INIT = 'init_path = "/nowhere"'
"""podman on a machine without catatonit."""

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def subject_of(service: Service, environment: Environment, folder: Path) -> Iterator[Subject]:
    found = Subject(
        environment, folder, service.site(), leftovers=lambda mark: service.containers()
    )  # fmt: skip
    yield found
    wait_until_nothing_is_left(found, "any", 30)


@pytest.fixture
def subject(podman: Podman, prepared: Environment, tmp_path: Path) -> Iterator[Subject]:
    yield from subject_of(podman, prepared, tmp_path)


@pytest.mark.campaign  # the tests below run podman; a container of it takes ten times as long
class TestPodman(EnvironmentContract):
    @pytest.fixture
    def subject(self, subject: Subject) -> Subject:
        return subject


class TestDockerd(EnvironmentContract):
    @pytest.fixture
    def subject(
        self, dockerd: Dockerd, image: str, cache: Path, tmp_path: Path
    ) -> Iterator[Subject]:
        found = environments.prepare(image, cache, dockerd.site())
        yield from subject_of(dockerd, found, tmp_path)

    def test_an_image_that_is_not_there_is_one_clear_line(
        self, subject: Subject, dockerd: Dockerd, image: str, cache: Path
    ) -> None:
        gone = f"{image.partition('@')[0]}@sha256:{'0' * 64}"
        with pytest.raises(
            EnvironmentFault, match="Docker cannot fetch .*does not have this image"
        ):
            environments.prepare(gone, cache, dockerd.site())

    def test_what_a_program_may_do_is_limited(self, subject: Subject) -> None:
        code = (
            "import os\n"
            "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
            "print(int(status['CapBnd'], 16), status['NoNewPrivs'].strip(), os.getpid() > 1)\n"
            "open('/opt/tried', 'w')\n"
        )
        done = subject.run(code)
        assert done.stdout == b"0 1 True\n"
        assert b"Read-only file system" in done.stderr

    def test_gpus_are_asked_of_dockers_driver(self, subject: Subject) -> None:
        process = subject.start(["true"], gpus=2)
        _, err = process.communicate()
        assert process.returncode == 125
        assert b'could not select device driver "" with capabilities: [[gpu]]' in err


# -- preparation ----------------------------------------------------------------------------


def test_a_tag_becomes_a_digest_and_what_is_there_is_not_asked_again(
    podman: Podman, prepared: Environment, image: str, cache: Path
) -> None:
    probes = list((cache / "images").glob("*.probe.json"))
    before = [path.stat().st_mtime_ns for path in probes]
    said: list[str] = []
    tagged, _, digest = image.partition("@")
    again = environments.prepare(tagged, cache, podman.site(), say=said.append)
    assert (again.path, again.digest, again.packages) == (
        prepared.path, digest, prepared.packages
    )  # fmt: skip
    assert prepared.path == f"{image.removeprefix('docker://').partition(':1@')[0]}@{digest}"
    assert prepared.details["engine"].startswith("podman 4")
    assert prepared.versions["six"].startswith("1.")  # of the image, by the probe
    assert len(probes) == 1
    assert [path.stat().st_mtime_ns for path in probes] == before
    assert not any("fetched" in line for line in said)


def test_an_image_the_registry_does_not_know_is_one_clear_line(
    podman: Podman, prepared: Environment, image: str, cache: Path
) -> None:
    tagged, _, digest = image.partition("@")
    with pytest.raises(EnvironmentFault, match="the registry does not know"):
        environments.prepare(f"{tagged}-not-there", cache, podman.site())
    gone = f"{tagged}@sha256:{'0' * 64}"
    with pytest.raises(
        EnvironmentFault, match="Docker cannot fetch .*does not have this image"
    ) as reported:
        environments.prepare(gone, cache, podman.site())
    assert "\n" not in str(reported.value)


def test_a_registry_that_docker_does_not_know_to_be_without_tls_is_reported(
    another: Callable[..., Podman], image: str, cache: Path, folder: Path
) -> None:
    strict = another("strict", store=folder / "strict", insecure=False)
    with pytest.raises(EnvironmentFault, match=r"insecure-registries in /etc/docker/daemon\.json"):
        environments.prepare(image, cache, strict.site())


def test_a_full_disk_is_reported(
    another: Callable[..., Podman], image: str, cache: Path, folder: Path
) -> None:
    small = folder / "small-store"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        full = another("small", store=small)
        with pytest.raises(EnvironmentFault, match="no space left") as reported:
            environments.prepare(image, cache, full.site())
        assert "docker image prune" in str(reported.value)
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_no_docker_and_one_that_may_not_be_used_are_distinguished(
    podman: Podman, prepared: Environment, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentFault, match="there is no Docker on this machine"):
        docker_run.find_socket(str(folder / "nothing"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{podman.socket}")
    assert docker_run.find_socket(None) == podman.socket
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    with pytest.raises(EnvironmentFault, match="ssh://elsewhere: only a Docker on this machine"):
        docker_run.find_socket(None)

    def connect() -> int:
        try:
            docker_run.connect(podman.socket)
        except EnvironmentFault as error:
            os.write(1, str(error).encode())
        return 0

    Path(podman.socket).chmod(0o600)
    try:
        _, reported = as_stranger(connect)
    finally:
        Path(podman.socket).chmod(0o666)
    assert reported.startswith("no access to Docker: permission denied on")
    assert "to the docker group, or run `systemctl --user start podman.socket`" in reported


def test_what_is_no_image_and_what_is_no_option_are_the_users_errors(
    podman: Podman, cache: Path
) -> None:
    with pytest.raises(UserError, match=r"is not an image for Docker"):
        environments.prepare("/some/file.sif", cache, podman.site())
    with pytest.raises(UserError, match="there is no file /nowhere"):
        environments.prepare("docker-archive:/nowhere", cache, podman.site())
    wrong = podman.site(options={"sockett": "x"})
    with pytest.raises(UserError, match=r"container\.options\.sockett"):
        environments.prepare("docker://x/y", cache, wrong)


def test_an_archive_is_loaded_and_loaded_again_where_it_is_missing(
    podman: Podman, prepared: Environment, cache: Path, tmp_path: Path, folder: Path
) -> None:
    archive, root = folder / "image.tar", folder / "root.tar"
    client = docker_run.connect(podman.socket, 300)
    words = ["tar", "-c", "--one-file-system", "-C", "/", "."]
    with Subject(prepared, tmp_path, podman.site()).start(words) as process:
        assert process.stdout is not None
        root.write_bytes(process.stdout.read())
    podman.command("import", str(root), "localhost/small:1")
    podman.command("save", "--format=docker-archive", "-o", str(archive), "localhost/small:1")
    client.images.remove("localhost/small:1", force=True)

    said: list[str] = []
    found = environments.prepare(f"docker-archive:{archive}", cache, podman.site(), say=said.append)
    assert found.path.startswith("sha256:")
    assert found.versions["python"].startswith("3.")
    assert said[0] == f"loading {archive}"
    client.images.remove(found.path, force=True)
    subject = Subject(found, tmp_path, podman.site())
    done = subject.run("import pydantic; print('ran')")
    assert (done.stdout, done.returncode) == (b"ran\n", 0), done.stderr
    assert len(client.images.list()) == 2


def test_an_image_of_dockers_daemon_becomes_a_sif(
    dockerd: Dockerd, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker-daemon:NAME:TAG`, by the real daemon and the real Apptainer, which come with `image`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("hello")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    api = docker_run.connect(dockerd.socket).api
    api.import_image_from_data(layer.getvalue(), repository="me/hello", tag="1")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{dockerd.socket}")
    site = ContainerSite(program=str(Lab.current().home / "bin/apptainer"))
    source = Source.of("docker-daemon:me/hello:1", tmp_path, site)
    assert source.digest == api.inspect_image("me/hello:1")["Id"]
    program = Program.find(site, tmp_path)
    program.build(source, tmp_path / "hello.sif", say=lambda line: None)
    assert program.label(tmp_path / "hello.sif") == source.digest
    with pytest.raises(UserError, match="has no image of that name"):
        Source.of("docker-daemon:me/hello:2", tmp_path, site)


@pytest.mark.campaign  # an archive is loaded again by the test above
def test_a_machine_without_the_image_fetches_it(subject: Subject, podman: Podman) -> None:
    client = docker_run.connect(podman.socket, 300)
    client.images.remove(subject.environment.path, force=True)
    done = subject.run("print('ran')")
    assert (done.stdout, done.returncode) == (b"ran\n", 0), done.stderr


# -- what a program may do ------------------------------------------------------------------


def test_a_program_has_no_rights_and_writes_only_where_it_is_to(subject: Subject) -> None:
    private = subject.folder / "private"
    private.mkdir()
    code = (
        "import json, os, pathlib, subprocess\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "def can(place):\n"
        "    try:\n        pathlib.Path(place, 'tried').write_text('#!/bin/sh\\n')\n"
        "    except OSError as error:\n        return error.strerror\n"
        "    pathlib.Path(place, 'tried').chmod(0o755)\n"
        "    return subprocess.call([str(pathlib.Path(place, 'tried'))])\n"
        "print(json.dumps({'caps': status['CapBnd'].strip(), 'new': status['NoNewPrivs'].strip(),\n"
        "    'home': os.environ['HOME'], 'cwd': os.getcwd(),\n"
        "    'can': {place: can(place) for place in ('/opt', '/tmp', '/var/tmp', os.getcwd())},\n"
        "    'shm': os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize}))\n"
    )
    reported = json.loads(subject.run(code, [str(private)]).stdout)
    assert (int(reported["caps"], 16), reported["new"]) == (0, "1")
    assert reported["home"] == reported["cwd"] == str(private)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert reported["shm"] > memory / 3
    assert reported["can"] == {
        "/opt": "Read-only file system",
        "/tmp": 0,
        "/var/tmp": 0,
        str(private): 0,
    }


def test_metrics_score_in_a_container_as_on_the_host(
    podman: Podman, image: str, cache: Path, tmp_path: Path
) -> None:
    container = podman.site()
    there = environments.prepare(image, cache, container, for_cpus(own_requirements(OF_METRICS)))
    site = Site(name="s", container=container, scratch=str(tmp_path))
    wanted = [Wanted("anls", "anls"), Wanted("gone", "a.module.Metric")]
    scorer = ImageScorer("image 'x'", wanted, there, site, 30.0)
    asked = [
        (sample(id=str(n), references=("Total 7",)), Reading(text))
        for n, text in enumerate(("Total 7", "total 8", "другое"))
    ]
    found = scorer.score(asked)
    here = Scorer(Anls())
    assert [one for one, _ in found["anls"]] == [here.score(*one) for one in asked]
    assert "could not score in image 'x'" in str(found["gone"][0][1])
    assert podman.containers() == []


def test_a_site_may_cut_off_the_network(subject: Subject, podman: Podman) -> None:
    code = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert subject.run(code).stdout != b"['lo']\n"
    cut = Subject(subject.environment, subject.folder, podman.site(network="none"))
    assert cut.run(code).stdout == b"['lo']\n"


def test_what_another_user_makes_is_hers(
    subject: Subject, podman: Podman, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hers = folder / "hers"
    hers.mkdir()
    os.chown(hers, 65534, 65534)
    words = ["sh", "-c", f"id -u; id -g; touch {hers}/made"]
    command = environments.wrap(subject.environment, words, [str(hers)], {}, 0, podman.site())
    for name, value in command.env.items():
        monkeypatch.setenv(name, value)
    code, out = as_stranger(lambda: docker_run.main(words))
    assert (code, out) == (0, "65534\n65534\n")
    made = (hers / "made").stat()
    assert (made.st_uid, made.st_gid) == (65534, 65534)


def test_without_a_program_to_be_process_1_it_runs_all_the_same(
    subject: Subject, another: Callable[..., Podman]
) -> None:
    bare = another("bare", engine=NO_INIT)
    code = "import os; print(os.getpid()); raise SystemExit(7)"
    done = Subject(subject.environment, subject.folder, bare.site()).run(code)
    assert (done.stdout, done.returncode) == (b"1\n", 7), done.stderr
    assert subject.run(code).stdout != b"1\n"


def test_gpus_that_podman_would_not_give_are_refused(subject: Subject) -> None:
    process = subject.start(["true"], gpus=2)
    _, err = process.communicate()
    assert process.returncode == 125
    assert b"provides no GPU through its socket (use podman 5.4 or newer" in err


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("not-there", 127, "the image has no program not-there"),
        ("/etc/passwd", 126, "the image's /etc/passwd is not executable"),
    ],
)
def test_a_program_that_cannot_be_started_is_reported_with_dockers_codes(
    subject: Subject, another: Callable[..., Podman], program: str, code: int, why: str
) -> None:
    bare = another(f"bare-{code}", engine=NO_INIT)
    process = Subject(subject.environment, subject.folder, bare.site()).start([program])
    _, err = process.communicate()
    assert process.returncode == code
    assert err.decode().startswith(f"hpcbench: {why}")
    assert err.decode().count("\n") == 1
    # With an init program it is that which does not find the other: its codes are its own.
    process = subject.start([program])
    _, err = process.communicate()
    assert process.returncode != 0
    assert b"failed to exec" in err


# -- nothing is left behind -----------------------------------------------------------------


def test_a_program_that_hears_nothing_goes_when_its_runner_is_killed(subject: Subject) -> None:
    with subject.running(DEAF, mark="deaf") as process:
        assert subject.left("deaf")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_until_nothing_is_left(subject, "deaf", 30)


def test_a_program_that_does_not_end_on_sigterm_is_killed_in_time(subject: Subject) -> None:
    with subject.running(DEAF, mark="slow") as process:
        started = time.monotonic()
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGKILL
        assert time.monotonic() - started > docker_run.GRACE - 1
        wait_until_nothing_is_left(subject, "slow", 5)


def test_what_runner_and_guard_could_not_remove_is_removed_later(
    subject: Subject, podman: Podman
) -> None:
    client = docker_run.connect(podman.socket)
    with subject.running(DEAF, mark="living"):
        (living,) = podman.containers()
        with subject.running(DEAF, mark="orphan") as process:
            for pid in with_descendants([process.pid]):  # the guard first: it would help
                if pid != process.pid:
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            time.sleep(1)
            assert len(podman.containers()) == 2
            docker_run.sweep(client)
            assert podman.containers() == [living]
    wait_until_nothing_is_left(subject, "living", 30)


def test_a_runner_that_ends_before_its_container_starts_leaves_none(
    subject: Subject, podman: Podman
) -> None:
    for wait in (0.05, 0.3, 0.5, 0.7):
        process = subject.start(["python", "-c", DEAF])
        time.sleep(wait)
        process.terminate()
        process.kill() if wait > 0.6 else None
        process.communicate()
        wait_until(lambda: not podman.containers(), 120, "the container to go")


# -- the whole ------------------------------------------------------------------------------


def test_hpcbenchs_wrapper_answers_from_the_container(subject: Subject) -> None:
    from hpcbench.inference.client import Client

    private = subject.folder / "p"
    private.mkdir()
    socket = private / "s"
    words = ["python", "-m", "hpcbench.wrapper", "--socket", str(socket)]
    words += ["--engine-dir", str(private), "--log", str(private / "log")]

    async def ask() -> str:
        async with Client(str(socket), "the-key", "model") as client:
            return str((await client.status())["state"])

    env = {"PYTHONUNBUFFERED": "1"}
    with subject.start(words, [str(private)], env) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"the-key\n")
            process.stdin.flush()
            wait_until(socket.exists, 60, "the wrapper's socket")
            assert asyncio.run(ask()) == "empty"
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            process.kill()
