"""Files through pipes: a file that was sent is there, once, and a broken transfer goes on."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault
from hpcbench.remote.pipe_transfer import Parcel, ParcelFile, fetch, receive, send, serve
from hpcbench.remote.server import Pipes
from tests.campaign import examples


class Broken(OSError):
    """The wire was cut."""


class CutPipes(Pipes):
    """Pipes that pass so many bytes on and then break."""

    def __init__(self, source: Any, sink: Any, most: int) -> None:
        super().__init__(source, sink)
        self._left = most

    def write(self, data: bytes) -> None:
        super().write(data[: self._left])
        self._left -= len(data)
        if self._left < 0:
            raise Broken


def talk(
    near: Callable[[Pipes], Any], far: Callable[[Pipes], Any], most: int | None = None
) -> tuple[Any, BaseException | None]:
    """Run both ends; what the near one returns, and what the far one raised."""
    there, here = os.pipe(), os.pipe()
    failed: list[BaseException] = []

    def run() -> None:
        with os.fdopen(there[0], "rb") as source, os.fdopen(here[1], "wb") as sink:
            try:
                far(Pipes(source, sink))
            except (EnvironmentFault, BrokenPipeError) as error:
                failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with os.fdopen(here[0], "rb") as source, os.fdopen(there[1], "wb") as sink:
            wire = Pipes(source, sink) if most is None else CutPipes(source, sink, most)
            return near(wire), failed[0] if failed else None
    finally:
        thread.join()


def parcel(files: dict[str, bytes], executable: tuple[str, ...] = ()) -> tuple[Parcel, Any]:
    contents = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    sent = [
        ParcelFile(path, len(data), hashlib.sha256(data).hexdigest(), path in executable)
        for path, data in sorted(files.items())
    ]
    return Parcel(tuple(sent)), contents


def laid_out(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


FILES = {"a/b.txt": b"one", "a/c.txt": b"", "run.sh": b"#!/bin/sh\n", "twin": b"one"}


def test_a_parcel_is_there_as_it_was_under_the_hash_of_its_content(tmp_path: Path) -> None:
    one, contents = parcel(FILES, ("run.sh",))
    sent, _ = talk(lambda wire: send(wire, [one], contents), lambda wire: receive(wire, tmp_path))
    assert laid_out(tmp_path / one.name) == FILES
    assert sent == sum(map(len, {data: data for data in FILES.values()}))
    assert os.access(tmp_path / one.name / "run.sh", os.X_OK)
    assert not os.access(tmp_path / one.name / "twin", os.X_OK)
    assert one.name != parcel(FILES)[0].name, "whether a file may be run is part of what it is"


def test_what_is_there_is_not_sent_again_and_of_a_changed_parcel_only_what_changed(
    tmp_path: Path,
) -> None:
    one, contents = parcel({"big": b"x" * 100_000, "small": b"1"})
    other, more = parcel({"big": b"x" * 100_000, "small": b"22"})

    def sent(which: Parcel) -> int:
        return int(
            talk(
                lambda wire: send(wire, [which], {**contents, **more}),
                lambda wire: receive(wire, tmp_path),
            )[0]
        )

    assert [sent(one), sent(one), sent(other)] == [100_001, 0, 2]
    assert laid_out(tmp_path / other.name)["small"] == b"22"


@settings(max_examples=examples(30))
@given(most=st.integers(0, 260_000), size=st.integers(1, 120_000))
def test_wherever_it_breaks_the_next_try_goes_on_and_all_is_whole(
    tmp_path_factory: pytest.TempPathFactory, most: int, size: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    data = os.urandom(size)
    files = {"first": data, "second": b"2" + data, "third": b"3"}
    whole = sum(len(content) for content in {*files.values()})
    one, contents = parcel(files)
    try:
        talk(lambda wire: send(wire, [one], contents), lambda wire: receive(wire, root), most)
    except (Broken, EnvironmentFault):
        assert not (root / one.name).exists(), "a folder that is there is whole"
    here = sum(path.stat().st_size for path in root.glob("files/*"))
    sent, fault = talk(lambda wire: send(wire, [one], contents), lambda wire: receive(wire, root))
    assert fault is None
    assert sent == whole - here
    assert laid_out(root / one.name) == files


def test_what_came_otherwise_than_announced_is_refused_and_can_be_sent_again(
    tmp_path: Path,
) -> None:
    one, contents = parcel({"a": b"right"})
    key = next(iter(contents))
    with pytest.raises(EnvironmentFault):
        talk(lambda wire: send(wire, [one], {key: b"wrong"}), lambda wire: receive(wire, tmp_path))
    assert not (tmp_path / one.name).exists()
    talk(lambda wire: send(wire, [one], contents), lambda wire: receive(wire, tmp_path))
    assert laid_out(tmp_path / one.name) == {"a": b"right"}


@pytest.mark.parametrize("path", ["../up", "/etc/cron.d/x", "a/../../b", "", "nul\0"])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    message = {"files": [[path, 1, "0" * 64, False]]}
    wire = Pipes(io.BytesIO(json.dumps(message).encode() + b"\n"), io.BytesIO())
    with pytest.raises(EnvironmentFault, match="not a valid place"):
        fetch(wire, tmp_path / "in")
    message = {"parcels": {"../../x": [["a", 1, "0" * 64, False]]}}
    wire = Pipes(io.BytesIO(json.dumps(message).encode() + b"\n"), io.BytesIO())
    with pytest.raises(EnvironmentFault, match="not a hash"):
        receive(wire, tmp_path / "in")


def test_a_folder_is_fetched_and_only_what_changed_the_next_time(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "plots").mkdir(parents=True)
    (there / "report.html").write_bytes(b"h" * 50_000)
    (there / "plots/a.png").write_bytes(b"p" * 1000)

    def fetched() -> int:
        return int(talk(lambda wire: fetch(wire, here), lambda wire: serve(wire, there))[0])

    assert fetched() == 51_000
    assert laid_out(here) == laid_out(there)
    (there / "plots/a.png").write_bytes(b"q" * 1000)
    assert fetched() == 1000
    assert laid_out(here) == laid_out(there)
    (here / "report.html").write_bytes(b"damaged!" * 6250)  # of the same size
    assert fetched() == 50_000


def test_a_fetch_that_broke_off_goes_on_where_it_was(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    data = os.urandom(300_000)
    (there / "report.html").write_bytes(data)

    def cut(wire: Pipes) -> None:
        """Give what is asked for, up to a point."""
        listed = io.BytesIO()
        asked = io.BytesIO(b'{"wanted":[["report.html",0]]}\n')
        serve(Pipes(asked, listed), there)
        wire.write(listed.getvalue()[:200_000])

    with pytest.raises(EnvironmentFault, match="broke off"):
        talk(lambda wire: fetch(wire, here), cut)
    assert not (here / "report.html").exists()
    came, _ = talk(lambda wire: fetch(wire, here), lambda wire: serve(wire, there))
    assert 100_000 <= came < 101_000
    assert laid_out(here) == {"report.html": data}
