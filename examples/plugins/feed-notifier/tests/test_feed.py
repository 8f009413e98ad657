import xml.etree.ElementTree as ET
from pathlib import Path

from hpcbench_example_feed import ATOM, add_entry


def test_the_newest_come_first_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    for number in range(4):
        text = "a <b> & c"
        add_entry(
            path, {"id": f"urn:{number}", "title": "t", "time": f"{number}", "text": text}, keep=3
        )
    add_entry(path, {"id": "urn:2", "title": "again", "time": "9", "text": ""}, keep=3)
    entries = ET.parse(path).getroot().findall(f"{{{ATOM}}}entry")
    assert [one.findtext(f"{{{ATOM}}}id") for one in entries] == ["urn:2", "urn:3", "urn:1"]
    assert entries[1].findtext(f"{{{ATOM}}}summary") == "a <b> & c"
