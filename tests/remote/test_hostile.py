"""Servers that break off, lie or forget: one line each, in bounded time, and nothing wrong is kept."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcbench.data import transfer
from hpcbench.data.storage import open_storage
from hpcbench.data.sync import SmartSync
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import StoredFile
from tests.campaign import first
from tests.remote.conftest import Server, settle
from tests.remote.cutter import Cutter
from tests.remote.ssh_home import give_ssh_a_home
from tests.remote.sshd import Sshd


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TRIES", 2)


@pytest.fixture(params=["file", "s3", "sftp", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    """A fresh folder with two files on each kind of server."""
    if request.param == "file":
        (tmp_path / "served").mkdir()
        made = Server(f"file://{tmp_path}/served", tmp_path / "served", {}, 0)
    else:
        server: Server = request.getfixturevalue({"http": "web"}.get(request.param, request.param))
        fresh = uuid.uuid4().hex[:8]
        (server.folder / fresh).mkdir()
        slash = "/" if request.param == "http" else ""
        url, folder = f"{server.url}/{fresh}{slash}", server.folder / fresh
        made = Server(url, folder, server.options, server.port)
    for name in ("a.bin", "b.bin"):
        (made.folder / name).write_bytes(secrets.token_bytes(200_000))
    settle()
    return made


def test_a_file_that_went_after_it_was_listed_is_one_line(place: Server) -> None:
    storage = open_storage(place.url, place.options)
    file = next(file for file in storage.list(place.url) if file.path == "a.bin")
    (place.folder / "a.bin").unlink()
    settle()
    for start, stop in ((0, file.size), (100, 5000)):
        with pytest.raises(FileNotFoundError) as reported:
            list(storage.read(place.url, file, start, stop))
        assert len(str(reported.value).splitlines()) == 1
        assert len(str(reported.value)) < 300


def test_a_file_that_shrank_is_reported_soon(place: Server, tmp_path: Path) -> None:
    storage = open_storage(place.url, place.options)
    file = next(file for file in storage.list(place.url) if file.path == "a.bin")
    os.truncate(place.folder / "a.bin", 1000)
    settle()
    started = time.monotonic()
    for start, stop in ((0, file.size), (100, 150_000)):
        with pytest.raises(OSError):  # noqa: PT011 - each server says it in its way
            list(transfer.pieces(storage, place.url, file, start, stop))
    assert time.monotonic() - started < 120


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("after", first(1, [30_000, 0, 300_000]))
@pytest.mark.parametrize("place", ["s3", "sftp", "http"], indirect=True)
def test_a_connection_that_is_always_cut_brings_all_or_ends_in_one_line(
    place: Server, tmp_path: Path, cutter: Cutter, after: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (place.folder / "large.bin").write_bytes(secrets.token_bytes(3 << 20))
    settle()
    cutter.to, cutter.cut_after = place.port, after
    options, url = dict(place.options), place.url.replace(str(place.port), str(cutter.port))
    if "endpoint" in options:
        options["endpoint"] = f"http://127.0.0.1:{cutter.port}"
    if "known_hosts" in options:
        known = Path(options["known_hosts"]).read_text()
        (tmp_path / "known").write_text(known.replace(str(place.port), str(cutter.port)))
        options["known_hosts"] = str(tmp_path / "known")
    reported, version = "", None
    try:
        version = SmartSync(tmp_path / "cache").bring(url, options)
    except EnvironmentFault as error:
        reported = str(error)
    assert len(reported.splitlines()) == (0 if version else 1)
    for path in place.folder.iterdir() if version else ():  # a bit came each time
        assert (version.files / path.name).read_bytes() == path.read_bytes()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


# --- SSH -----------------------------------------------------------------------------------------------


def test_a_key_with_a_password_opens_with_it_alone(sftp: Server, tmp_path: Path) -> None:
    (sftp.folder / "x").write_text("x")
    key = tmp_path / "locked"
    shutil.copyfile(sftp.options["key"], key)
    key.chmod(0o600)
    change = ["ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", str(key)]
    subprocess.run(change, check=True, stdout=subprocess.DEVNULL)
    options = {**sftp.options, "key": str(key)}
    for wrong in ({}, {"password": "closed"}):
        with pytest.raises(UserError, match="refuses the login") as reported:
            SmartSync(tmp_path / "a").bring(sftp.url, {**options, **wrong})
        assert "closed" not in str(reported.value)
    assert SmartSync(tmp_path / "a").bring(sftp.url, {**options, "password": "open sesame"}).count


def test_the_users_ssh_config_counts(
    sftp: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sftp.folder / "x").write_text("x")
    give_ssh_a_home(tmp_path / "home", monkeypatch)
    (tmp_path / "home/.ssh/config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {sftp.port}\n  IdentityFile {sftp.options['key']}\n"
        f"  UserKnownHostsFile {sftp.options['known_hosts']}\n"
    )
    version = SmartSync(tmp_path / "c").bring(f"sftp://lab{sftp.folder}")
    assert "x" in {kept.path for kept in version.kept()}


@pytest.mark.parametrize("host", ["-oProxyCommand=touch${IFS}pwned", ""])
def test_a_host_that_is_an_option_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(UserError, match="names no valid host and port"):
        SmartSync(tmp_path).bring(f"sftp://{host}/x")


def test_a_shell_that_talks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\necho Welcome to the cluster\nexec cat\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        EnvironmentFault, match="does not speak SFTP: check that its shell prints nothing"
    ):
        SmartSync(tmp_path / "c").bring("sftp://host/x")


def test_no_ssh_is_an_environments_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="install the OpenSSH client"):
        SmartSync(tmp_path / "c").bring("sftp://host/x")


def test_no_ssh_process_outlives_its_storage(sftp: Server, tmp_path: Path) -> None:
    (sftp.folder / "x").write_text("x")
    SmartSync(tmp_path / "c").bring(sftp.url, sftp.options)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children]
    assert "ssh" not in names


# --- HTTP ----------------------------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[str, str], bytes]) -> Iterator[str]:
    """A server that gives paths and bodies answers set by the test, byte for byte; gives its address."""

    def serve() -> None:
        while True:
            try:
                wire, _ = listening.accept()
            except OSError:
                return
            with wire:
                head, _, body = wire.recv(65536).decode().partition("\r\n\r\n")
                if not body and head.startswith("POST"):
                    body = wire.recv(65536).decode()
                wire.sendall(answer(head.split(" ")[1] if " " in head else "", body))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def page(body: bytes, length: int | None = None, status: str = "200 OK") -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (page(b"<a href='x'>", 5000), "the answer is incomplete"),
        (b"nonsense\r\n\r\n", "the answer is incomplete"),
        (b"", "the answer is incomplete|the connection broke"),
        (page(b"", status="500 Oh no"), "answers 500"),
    ],
    ids=["short", "nonsense", "nothing", "500"],
)
def test_a_broken_page_is_one_line(tmp_path: Path, answer: bytes, expected: str) -> None:
    with answering(lambda path, body: answer) as server:
        with pytest.raises(EnvironmentFault, match=expected) as reported:
            SmartSync(tmp_path).bring(f"http://{server}/d/")
        assert len(str(reported.value).splitlines()) == 1


def test_sums_that_are_not_text_are_the_sources_mistake(tmp_path: Path) -> None:
    with (
        answering(lambda path, body: page(b"\xff\xfe\x00")) as server,
        pytest.raises(UserError, match="SHA256SUMS is not UTF-8"),
    ):
        SmartSync(tmp_path).bring(f"http://{server}/d/")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>Please log in", "is not JSON"),
        (b'{"error": "moved"}', "in an unknown form"),
        (b'[{"type": "file", "path": "a"}]', "in an unknown form"),
    ],
)
def test_a_hub_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, expected: str
) -> None:
    with answering(lambda path, asked: page(body)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://{server}")
        with pytest.raises(EnvironmentFault, match=expected):
            SmartSync(tmp_path).bring("hf://org/name")


def test_many_small_files_come_whole_whatever_breaks_in_between(
    sftp: Server, tmp_path: Path, cutter: Cutter
) -> None:
    fresh = sftp.folder / uuid.uuid4().hex[:8]
    fresh.mkdir()
    contents = {f"{n:03d}": secrets.token_bytes(n * 200) for n in range(200)}
    for name, data in contents.items():
        (fresh / name).write_bytes(data)
    cutter.to, cutter.cut_after = sftp.port, 1 << 20
    known = Path(sftp.options["known_hosts"]).read_text()
    (tmp_path / "known").write_text(known.replace(str(sftp.port), str(cutter.port)))
    url = f"{sftp.url}/{fresh.name}".replace(str(sftp.port), str(cutter.port))
    options = {**sftp.options, "known_hosts": str(tmp_path / "known")}
    version = SmartSync(tmp_path / "c").bring(url, options)
    assert cutter.cuts >= 3
    for name, data in contents.items():
        assert (version.files / name).read_bytes() == data


def test_a_read_that_is_given_up_in_the_middle_leaves_no_answers_for_the_next(sftp: Server) -> None:
    data = secrets.token_bytes(40 << 20)
    (sftp.folder / "given-up").write_bytes(data)
    storage = open_storage(sftp.url, sftp.options)
    file = StoredFile("given-up", len(data))
    for _ in range(3):
        reading = iter(storage.read(sftp.url, file, 0, file.size))
        next(reading)
        del reading
        assert b"".join(storage.read(sftp.url, file, 5, 300_000)) == data[5:300_000]


def test_a_file_that_changes_while_it_is_read_is_no_mixture(sftp: Server) -> None:
    place, size = sftp.folder / uuid.uuid4().hex[:8] / "changes", 8 << 20
    place.parent.mkdir()
    place.write_bytes(b"a" * size)
    url = f"{sftp.url}/{place.parent.name}"
    storage = open_storage(url, sftp.options)
    (file,) = storage.list(url)
    assert b"".join(storage.read(url, file, 0, size)) == b"a" * size
    os.utime(place, (1, 1))  # SFTP tells whole seconds
    with pytest.raises(OSError, match="changed while it was read: sync again"):
        list(transfer.pieces(storage, url, file, 5, 300_000))
    with pytest.raises(OSError, match="changed while it was read: sync again"):
        list(storage.many(url, [file]))  # type: ignore[attr-defined]
    place.write_bytes(b"b" * 101)
    with pytest.raises(OSError, match="changed while it was read: sync again"):
        list(storage.many(url, [StoredFile("changes", 100)]))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe"])
def test_what_is_no_file_over_there_is_named(sftp: Server, tmp_path: Path, kind: str) -> None:
    fresh = sftp.folder / uuid.uuid4().hex[:8]
    fresh.mkdir()
    os.mkfifo(fresh / ("odd" if kind == "pipe" else ".pipe"))
    if kind != "pipe":
        (fresh / "odd").symlink_to(".pipe")
    with pytest.raises(UserError, match="odd is not a file, but a pipe, socket or device"):
        SmartSync(tmp_path / "c").bring(f"{sftp.url}/{fresh.name}", sftp.options)


def test_files_are_put_where_the_server_cannot_rename_over_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    server = Sshd.make(tmp_path / "ssh")
    config = server.folder / "config"
    config.write_text(
        config.read_text().replace("sftp internal-sftp", "sftp internal-sftp -P posix-rename")
    )
    (server.folder / "known").write_text(server.known)
    with server:
        options = {"key": f"{server.folder}/user", "known_hosts": f"{server.folder}/known"}
        url = f"sftp://{getpass.getuser()}@127.0.0.1:{server.port}{tmp_path}/there"
        storage = open_storage(url, options)
        for data in (b"first", b"second"):
            (tmp_path / "one").write_bytes(data)
            storage.put(tmp_path / "one", url, "sub/a.txt")
            assert [path.name for path in (tmp_path / "there/sub").iterdir()] == ["a.txt"]
            assert (tmp_path / "there/sub/a.txt").read_bytes() == data


def test_marks_of_urls_are_letters_in_the_name_of_a_folder_over_there(
    sftp: Server, tmp_path: Path
) -> None:
    (sftp.folder / "scans #1?").mkdir()
    (sftp.folder / "scans #1?/x").write_text("x")
    version = SmartSync(tmp_path / "c").bring(f"{sftp.url}/scans #1?", sftp.options)
    assert [kept.path for kept in version.kept()] == ["x"]
