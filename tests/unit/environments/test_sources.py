"""The parts of an image reference; real builds of each form: `tests/apptainer`."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from hpcbench.environments.sif import check_version
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.schema.site import ContainerSite

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    folder = tmp_path / "oci"
    folder.mkdir()
    named = {"org.opencontainers.image.ref.name": "new"}
    manifests = [{"digest": ONE}, {"digest": TWO, "annotations": named}]
    (folder / "index.json").write_text(json.dumps({"manifests": manifests}))
    return folder


@pytest.mark.parametrize(("how", "digest"), [(":new", TWO), (f"@{ONE}", ONE)])
def test_an_image_of_a_layout_is_named_by_tag_or_digest(
    layout: Path, tmp_path: Path, how: str, digest: str
) -> None:
    found = Source.of(f"oci:{layout}{how}", tmp_path, ContainerSite())
    assert (found.transport, found.origin, found.digest) == ("oci", f"{layout}@{digest}", digest)


@pytest.mark.parametrize("how", ["", ":old", "@sha256:3"])
def test_a_message_about_no_image_of_a_layout_says_what_is_there(
    layout: Path, tmp_path: Path, how: str
) -> None:
    with pytest.raises(UserError, match=f"holds .* = {ONE}, new = {TWO}"):
        Source.of(f"oci:{layout}{how}", tmp_path, ContainerSite())


@pytest.mark.parametrize("content", [None, "", "{}", '{"manifests": [1]}'])
def test_a_folder_that_is_no_layout_is_reported(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "index.json").write_text(content)
    with pytest.raises(UserError, match="is not an OCI layout"):
        Source.of(f"oci:{tmp_path}", tmp_path, ContainerSite())


class Daemon(BaseHTTPRequestHandler):
    """Knows one image, as the API of Docker's daemon tells of it (a fake: there is none here)."""

    def do_GET(self) -> None:
        known = self.path == "/images/me%2Fengine%3A1/json"
        body = json.dumps({"Id": ONE} if known else {"message": "no such image"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    place = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
    with socketserver.ThreadingUnixStreamServer(str(place), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


def test_an_image_of_dockers_daemon_goes_by_its_id(daemon: None, tmp_path: Path) -> None:
    assert Source.of("docker-daemon:me/engine:1", tmp_path, ContainerSite()).digest == ONE
    with pytest.raises(UserError, match="has no image of that name"):
        Source.of("docker-daemon:me/engine:2", tmp_path, ContainerSite())


def test_no_daemon_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EnvironmentFault, match="cannot ask Docker's daemon .*No such file"):
        Source.of("docker-daemon:x:1", tmp_path, ContainerSite())


@pytest.mark.parametrize(
    "form", ["oci:{}:1", "oci-archive:{}", "docker-archive:{}", "{}.sif", "{}.def", "{}/Dockerfile"]
)
def test_what_the_file_system_refuses_is_one_line(form: str, tmp_path: Path) -> None:
    reference = form.format(
        tmp_path / ("x" * 300)
    )  # as a folder of another user, which root may enter
    with pytest.raises(
        UserError, match=r"cannot be read: File name too long|is not an OCI layout \(OSError\)"
    ):
        Source.of(reference, tmp_path, ContainerSite())


@pytest.mark.parametrize("reference", ["x", "ftp://x/y", "/tmp/x.tar", ""])
def test_a_message_about_what_is_no_image_says_what_would_be(
    reference: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"is not an image reference \(write docker://"):
        Source.of(reference, tmp_path, ContainerSite())


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("apptainer version 1.4.5", True),
        ("apptainer version 1.0.3-1.el8", False),
        ("singularity-ce version 4.1.2", True),
        ("singularity version 3.8.7-1.el8", True),
        ("singularity-ce version 3.7.4", False),
        ("2.6.1-dist", True),  # unknown: the build will tell
    ],
)
def test_programs_that_are_too_old_are_refused(text: str, good: bool) -> None:
    if good:
        check_version(text)
    else:
        with pytest.raises(EnvironmentFault, match="is too old"):
            check_version(text)
