"""The docs say what is there: rooms, verbs, fields."""

from __future__ import annotations

import re
from pathlib import Path

from hpcbench.cli.main import parser
from hpcbench.launch.status import ExperimentStatus

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "hpcbench"


def test_the_architecture_page_lists_exactly_the_rooms_there_are() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("## Rooms") :]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    listed = {
        name.rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row.split("|")[1])
    }
    rooms = {
        path.name
        for path in PACKAGE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    }
    assert listed == rooms - {"__init__.py"}


def test_the_status_page_names_every_field_of_status_json() -> None:
    text = (ROOT / "docs" / "status.md").read_text()
    for field in ExperimentStatus.model_fields:
        assert re.search(rf"`{field}(\[\])?`", text), field


def test_every_verb_has_help_with_an_example() -> None:
    (verbs,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    assert {"submit", "status", "resume", "doctor"} <= set(verbs)
    for name, verb in verbs.items():
        assert f"hpcbench {name}" in verb.format_help(), name


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
