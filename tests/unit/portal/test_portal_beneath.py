"""No name, link or exchange of links leads out of a folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hpcbench.portal.safe_open import open_beneath

TRAVERSALS = [
    (), ("",), (".",), ("..",), ("..", "secret"), ("a", "..", "..", "secret"), ("../secret",),
    ("a/../../secret",), ("/etc/passwd",), ("a", "/etc/passwd"), ("..\\secret",), ("a\0b",), ("a", ""),
    ("a", "."), ("%2e%2e", "secret"), ("..%2fsecret",), ("\u2025", "secret"), ("\uff0e\uff0e", "secret"),
    ("x" * 300,), ("\udcff\udcfe",), ("~", "secret"), ("file:///etc/passwd",), ("a;/../../secret",),
    ("a#", "..", "secret"), ("a?x=../secret",), ("....", "secret"), ("CON",), (" ..", "secret"),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("content")
    return root


def read(descriptor: int) -> str:
    with os.fdopen(descriptor) as file:
        return file.read()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_below_is_opened(root: Path) -> None:
    assert read(open_beneath(root, "a", "b", "file")) == "content"


@pytest.mark.parametrize("parts", TRAVERSALS)
def test_no_name_leads_out(root: Path, parts: tuple[str, ...]) -> None:
    before = open_files()
    with pytest.raises((FileNotFoundError, PermissionError)):
        open_beneath(root, *parts)
    assert open_files() == before, "nothing is left open"


def test_no_link_is_followed(root: Path) -> None:
    (root / "leaf").symlink_to(root.parent / "secret")
    (root / "inner").symlink_to(root / "a" / "b" / "file")
    (root / "way").symlink_to(root.parent)
    (root / "loop").symlink_to("loop")
    for parts in (
        ("leaf",),
        ("inner",),
        ("way", "secret"),
        ("way", "root", "a", "b", "file"),
        ("loop",),
    ):
        with pytest.raises(PermissionError):
            open_beneath(root, *parts)


def test_the_folder_itself_may_be_reached_through_a_link(root: Path) -> None:
    link = root.parent / "home"
    link.symlink_to(root)
    assert read(open_beneath(link, "a", "b", "file")) == "content"


def test_only_regular_files_are_opened_and_nothing_waits(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(PermissionError):
            open_beneath(root, name)
    with pytest.raises(PermissionError):
        open_beneath(Path("/dev"), "zero")
    with pytest.raises(PermissionError):
        open_beneath(root, "a", "b", "file", "below")


def test_exchanging_a_folder_for_a_link_at_the_worst_moment_gains_nothing(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    way, aside, link = root / "a" / "b", root / "a" / "aside", root / "a" / "link"
    link.symlink_to(outside)
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            way.rename(aside)
            link.rename(way)
            way.rename(link)
            aside.rename(way)

    thread = threading.Thread(target=exchange)
    thread.start()
    found = set()
    try:
        for _ in range(3000):
            try:
                found.add(read(open_beneath(root, "a", "b", "file")))
            except (FileNotFoundError, PermissionError):
                found.add("refused")
    finally:
        stop.set()
        thread.join()
    assert "secret" not in found
    assert found <= {"content", "refused"}
