"""The feed as a reader meets it: valid, newest first, never half written."""

from __future__ import annotations

import multiprocessing
import re
import xml.etree.ElementTree as ET
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hpcbench_example_feed import ATOM, Feed, add_entry, timestamp
from pydantic import ValidationError

SPACE = {"a": ATOM}
EVENT: dict[str, Any] = {
    "experiment": "20260101-1200-x-abcd",
    "state": "done",
    "report": "/data/my reports/x",
    "summary": 'x is done: a <b> & "c" ]]> 0.5',
    "time": "2026-01-01T12:00:00+0100",
}
RFC3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"


def entries(path: Path, tag: str = "id") -> list[str | None]:
    return [
        one.findtext(f"a:{tag}", namespaces=SPACE)
        for one in ET.parse(path).findall("a:entry", SPACE)
    ]


def entry(number: int, **more: str) -> dict[str, str]:
    time = f"2026-01-01T12:00:{number % 60:02}Z"
    return {"id": f"urn:x:{number}", "title": "t", "time": time, "text": "x", **more}


def test_the_newest_come_first_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "feed.xml"
    for number in range(4):
        add_entry(path, entry(number, text="a <b> & c"), keep=3)
    add_entry(path, entry(2, title="again"), keep=3)
    assert entries(path) == ["urn:x:2", "urn:x:3", "urn:x:1"]
    assert entries(path, "title")[0] == "again"
    assert entries(path, "content")[1] == "a <b> & c"


def test_an_event_is_an_entry_with_all_that_atom_wants(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    Feed({"path": str(path)}).send(EVENT)
    feed = ET.parse(path).getroot()
    for element in (feed, *feed.findall("a:entry", SPACE)):
        for tag in ("id", "title", "updated"):
            assert len(element.findall(f"a:{tag}", SPACE)) == 1
            assert element.findtext(f"a:{tag}", namespaces=SPACE)
        assert re.fullmatch(RFC3339, str(element.findtext("a:updated", namespaces=SPACE)))
        assert str(element.findtext("a:id", namespaces=SPACE)).startswith("urn:uuid:")
    assert feed.findtext("a:author/a:name", namespaces=SPACE) == "hpcbench"
    link = feed.find("a:entry/a:link", SPACE)
    assert link is not None
    assert link.get("href") == "file:///data/my%20reports/x"
    assert entries(path, "content") == [f"{EVENT['summary']}\n{EVENT['report']}"]


def test_an_experiment_has_one_entry_however_often_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    feed = Feed({"path": str(path)})
    feed.send({**EVENT, "state": "incomplete", "report": None})
    feed.send({**EVENT, "experiment": "other"})
    feed.send(EVENT)
    assert entries(path, "title") == [f"{EVENT['experiment']} is done", "other is done"]


def test_no_text_spoils_the_feed(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    for number, text in enumerate(
        ["\0\x1b[31m", "\ud83d", "\uffff", "<![CDATA[", "Итого 12,50 ₽ 😀"]
    ):
        add_entry(path, entry(number, title=text, text=text), keep=9)
    assert entries(path, "title") == ["Итого 12,50 ₽ 😀", "<![CDATA[", "�", "�", "��[31m"]


@pytest.mark.parametrize("text", ["<html><p></html>", "<rss/>", ""])
def test_what_is_no_feed_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "index.html"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no"):
        add_entry(path, entry(1), keep=3)
    assert path.read_text() == text


def test_what_breaks_off_leaves_the_old_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "feed.xml"
    add_entry(path, entry(1), keep=3)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        add_entry(path, entry(2), keep=3)
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"feed.xml", ".feed.xml.lock"}


def add(path: Path, number: int) -> None:
    add_entry(path, entry(number), keep=100)


def test_several_processes_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(add, [path] * 40, range(40)))
    assert sorted(map(str, entries(path))) == sorted(f"urn:x:{number}" for number in range(40))


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("2026-01-01T12:00:00+0000", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00-0330", "2026-01-01T12:00:00-03:30"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00.123456+02:00", "2026-01-01T12:00:00+02:00"),
    ],
)
def test_times_have_atoms_form(text: str, reported: str) -> None:
    assert timestamp(text) == reported
    assert re.fullmatch(RFC3339, timestamp("no time"))


@pytest.mark.parametrize("options", [{}, {"path": "x", "keep": 0}, {"path": "x", "kept": 1}])
def test_options_of_no_use_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Feed(options)
