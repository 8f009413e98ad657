"""Ended experiments as an Atom feed: one small XML file on the shared file system or a web server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

ATOM = "http://www.w3.org/2005/Atom"

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def add_entry(path: Path, entry: Mapping[str, str], keep: int, title: str = "hpcbench") -> None:
    """Put an entry first; those beyond `keep` go. The feed is written whole or not at all.

    Args:
        path: the feed; made if it is not there.
        entry: `id` (a URI; an older entry of the same id is replaced), `title`, `time` (ISO 8601), `text`,
            and `link`, if there is something to open.
        keep: most entries the feed may have.
        title: of the feed, when it is made.

    Raises:
        ValueError: what lies at `path` is no Atom feed; it is left as it is.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        feed = _read(path) if path.exists() else _empty(path, title)
        for old in feed.findall(_tag("entry")):
            if old.findtext(_tag("id")) == entry["id"]:
                feed.remove(old)
        others = feed.findall(_tag("entry"))
        place = list(feed).index(others[0]) if others else len(feed)
        feed.insert(place, _entry(entry))
        for old in feed.findall(_tag("entry"))[keep:]:
            feed.remove(old)
        updated = feed.find(_tag("updated"))
        if updated is None:
            updated = ET.SubElement(feed, _tag("updated"))
        updated.text = timestamp(entry["time"])
        _write(path, feed)


def timestamp(text: str) -> str:
    """A time as Atom wants it, with a colon in its zone; no zone is UTC, what is no time becomes now."""
    text = re.sub(r"Z$", "+00:00", re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text.strip()))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = datetime.now(timezone.utc)
    time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return time.isoformat(timespec="seconds")


class Feed:
    """The notifier for hpcbench."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the feed notifier."""

        model_config = ConfigDict(extra="forbid")

        path: str
        """The feed; made if it is not there."""
        keep: int = Field(default=50, gt=0)
        """Most entries it may have; the oldest go."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def send(self, event: Mapping[str, Any]) -> None:
        """Put the experiment first; one that ended before, and was taken up again, has one entry still."""
        name, report = str(event["experiment"]), event["report"]
        entry = {
            "id": uuid.uuid5(uuid.NAMESPACE_URL, f"hpcbench:{name}").urn,
            "title": f"{name} is {event['state']}",
            "time": str(event["time"]),
            "text": f"{event['summary']}\n{report or ''}".strip(),
        }
        if report and Path(report).is_absolute():
            entry["link"] = Path(report).as_uri()
        add_entry(Path(self.options.path).expanduser(), entry, self.options.keep)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {"path": str(folder / "feed.xml")}


def _empty(path: Path, title: str) -> ET.Element:
    """A feed without entries, of an identity that stays."""
    feed = ET.Element(_tag("feed"))
    _add(feed, "id", uuid.uuid5(uuid.NAMESPACE_URL, path.absolute().as_uri()).urn)
    _add(feed, "title", title)
    _add(feed, "updated", "")
    _add(_add(feed, "author", ""), "name", title)
    return feed


def _entry(entry: Mapping[str, str]) -> ET.Element:
    item = ET.Element(_tag("entry"))
    _add(item, "id", entry["id"])
    _add(item, "title", entry["title"])
    _add(item, "updated", timestamp(entry["time"]))
    if entry.get("link"):
        ET.SubElement(item, _tag("link"), {"rel": "alternate", "href": _clean(entry["link"])})
    _add(item, "content", entry["text"]).set("type", "text")
    return item


def _read(path: Path) -> ET.Element:
    try:
        feed = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise ValueError(f"{path} is no XML: {error}") from error
    if feed.tag != _tag("feed"):
        raise ValueError(f"{path} is no Atom feed")
    return feed


def _write(path: Path, feed: ET.Element) -> None:
    """Readers see the old feed or the new one, never half of it."""
    ET.register_namespace("", ATOM)
    ET.indent(feed)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("wb") as file:
            ET.ElementTree(feed).write(file, encoding="utf-8", xml_declaration=True)
            file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One at a time changes the feed, where the file system has locks."""
    with path.with_name(f".{path.name}.lock").open("a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)  # held until the file is closed
        yield


def _add(parent: ET.Element, tag: str, text: str) -> ET.Element:
    child = ET.SubElement(parent, _tag(tag))
    child.text = _clean(text)
    return child


def _clean(text: str) -> str:
    """Without what XML cannot hold, escaped or not."""
    return _NO_XML.sub("\ufffd", text)


def _tag(name: str) -> str:
    return f"{{{ATOM}}}{name}"
