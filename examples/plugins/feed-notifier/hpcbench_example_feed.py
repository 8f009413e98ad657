"""Ended experiments as an Atom feed: one small XML file on the shared file system or a web server."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

ATOM = "http://www.w3.org/2005/Atom"


def add_entry(path: Path, entry: Mapping[str, str], keep: int) -> None:
    """Put an entry (id, title, time, text) first; those beyond `keep` go; written whole or not at all."""
    ET.register_namespace("", ATOM)
    feed = ET.parse(path).getroot() if path.exists() else _empty()
    for old in feed.findall(f"{{{ATOM}}}entry"):
        if old.findtext(f"{{{ATOM}}}id") == entry["id"]:
            feed.remove(old)
    item = ET.Element(f"{{{ATOM}}}entry")
    for tag, text in (
        ("id", entry["id"]),
        ("title", entry["title"]),
        ("updated", entry["time"]),
        ("summary", entry["text"]),
    ):
        ET.SubElement(item, f"{{{ATOM}}}{tag}").text = text
    feed.insert(4, item)
    for old in feed.findall(f"{{{ATOM}}}entry")[keep:]:
        feed.remove(old)
    feed.find(f"{{{ATOM}}}updated").text = entry["time"]  # type: ignore[union-attr]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    ET.ElementTree(feed).write(beside, encoding="utf-8", xml_declaration=True)
    beside.replace(path)


def _empty() -> ET.Element:
    feed = ET.Element(f"{{{ATOM}}}feed")
    for tag, text in (("id", "urn:hpcbench"), ("title", "hpcbench"), ("updated", "")):
        ET.SubElement(feed, f"{{{ATOM}}}{tag}").text = text
    author = ET.SubElement(feed, f"{{{ATOM}}}author")
    ET.SubElement(author, f"{{{ATOM}}}name").text = "hpcbench"
    return feed


class Feed:
    """The notifier for hpcbench."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        path: str
        keep: int = Field(default=50, gt=0)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def send(self, event: Mapping[str, Any]) -> None:
        entry = {
            "id": f"urn:hpcbench:{event['experiment']}:{event['state']}",
            "title": f"{event['experiment']} is {event['state']}",
            "time": str(event["time"]),
            "text": f"{event['summary']}\n{event['report'] or ''}".strip(),
        }
        add_entry(Path(self.options.path).expanduser(), entry, self.options.keep)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {"path": str(folder / "feed.xml")}
