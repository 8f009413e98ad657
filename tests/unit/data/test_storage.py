"""Storages without a server: URLs that are none or tell a secret, and folders of this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.data.storage import FileStorage, as_os_error, open_storage
from hpcbench.errors import UserError


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("sftp://localhost:abc/x", "names no valid host and port"),
        ("sftp:///x", "names no valid host"),
        ("http:///x", "names no valid host"),
        ("http://[::1/x", "names no valid host"),
        ("http://127.0.0.1:99999/x", "names no valid host and port"),
        ("http://exa mple/x/", "names no valid host"),
        ("https://", "names no valid host"),
        ("http://host/folder/?page=2", "a folder cannot have a query"),
        ("s3://", "names no bucket"),
        ("s3://Bad Bucket/x", "names no bucket"),
        ("file://", "names no folder"),
        ("file:///", "names no folder"),
        ("file://data/x", "three slashes .write file:///data/x"),
    ],
)
def test_a_mistyped_url_is_one_line(url: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported) as caught:
        open_storage(url, {})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket.with-dots/a#b?c",
        "sftp://me@login-1.lab/~/x",
        "sftp://alias_of_ssh:2222/x",
        "http://[::1]:8000/x/",
        "https://host/get.php?id=1&download=yes&tokenizer=x",
        "https://host/get.php?sort_key=x&code=US&keys=2&sessions=3",
        "file://localhost/data",
    ],
)
def test_what_is_a_url_is_taken(url: str) -> None:
    open_storage(url, {})


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("sftp://me:hunter2@host/x", r"`password` of its `storage:`"),
        ("sftp://me:hunt/hunter2@host/x", "names no valid host"),
        ("http://me:hunter2@host/x", r"headers: \{Authorization"),
        ("https://hunter2@host/x", r"headers: \{Authorization"),
        ("https://host/x?X-Amz-Signature=hunter2&a=b", "`headers` of its"),
        ("https://host/x?sv=1&sig=hunter2", "`headers` of its"),
        ("https://host/x?access_token=hunter2", "`headers` of its"),
        ("https://host/x?key=hunter2", "`headers` of its"),
        ("https://host/x?a=1&Secret_Key=hunter2", "`headers` of its"),
        ("https://host/x?auth_key=hunter2", "`headers` of its"),
        ("https://host/x?authkey=hunter2", "`headers` of its"),
        ("https://host/x?subscription-key=hunter2", "`headers` of its"),
        ("https://host/x?pwd=hunter2", "`headers` of its"),
        ("https://host/x?sas=hunter2", "`headers` of its"),
        ("https://host/x?jwt=hunter2", "`headers` of its"),
        ("https://host/x?user_session=hunter2", "`headers` of its"),
        ("https://host/folder/?p=hunter2", "a folder cannot have a query"),
        ("s3://key:hunter2@bucket/x", "names no bucket"),
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_shown(url: str, reported: str) -> None:
    """The URL of a source is written into manifests and shown in lists."""
    with pytest.raises(UserError, match=reported) as caught:
        open_storage(url, {})
    assert "hunter2" not in str(caught.value)


def test_a_panic_of_a_library_is_an_error_of_its_place() -> None:
    class PanicException(BaseException):  # as pyo3 makes it
        pass

    with (
        pytest.raises(OSError, match="place: called `Result::unwrap"),
        as_os_error("place", lambda error: (OSError, str(error))),
    ):
        raise PanicException("called `Result::unwrap()` on an `Err` value")
    with pytest.raises(KeyboardInterrupt), as_os_error("place", lambda error: (OSError, "")):
        raise KeyboardInterrupt


def replaced(place: Path, data: bytes) -> None:
    (place.parent / ".new").write_bytes(data)
    (place.parent / ".new").replace(place)


@pytest.mark.parametrize("change", [replaced, Path.write_bytes])
def test_a_file_that_becomes_another_while_it_is_read_is_no_mixture(
    tmp_path: Path, change: Callable[[Path, bytes], object]
) -> None:
    place, size = tmp_path / "large.bin", 1 << 20
    place.write_bytes(b"a" * size)
    url, storage = f"file://{tmp_path}", FileStorage({})
    (file,) = storage.list(url)
    assert b"".join(storage.read(url, file, 0, size)) == b"a" * size
    first = storage.read(url, file, 0, size)
    next(iter(first))
    change(place, b"b" * size)
    with pytest.raises(OSError, match="large.bin changed while it was read: sync again"):
        list(storage.read(url, file, size // 2, size))
    if change is not replaced:  # what was opened before it was replaced is still the old one
        with pytest.raises(OSError, match="changed while it was read"):
            list(first)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_named_and_not_taken_for_an_empty_one(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    (tmp_path / "d").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "pipe":
            os.mkfifo("d/odd")
        else:
            listening.bind("d/odd")
        with pytest.raises(
            PermissionError, match="d/odd is not a file, but a pipe, socket or device"
        ):
            list(FileStorage({}).list(f"file://{tmp_path}/d"))


def test_a_file_is_put_under_a_name_that_no_process_elsewhere_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines that share a folder have processes of the same number."""
    names: list[str] = []
    replace = os.replace

    def noted(source: Path, target: Path) -> None:
        names.append(source.name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    (tmp_path / "source").write_bytes(b"x")
    for _ in range(2):
        FileStorage({}).put(tmp_path / "source", f"file://{tmp_path}/there", "a")
    assert len({*names}) == 2
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["a"]
