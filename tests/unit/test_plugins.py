"""Plugins are found by name, imported only when asked for, and checked when loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, UserError
from tests.conftest import ROOT


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.forget()
    yield tmp_path
    plugins.forget()


def install(site: Path, name: str, points: str, code: str = "") -> None:
    """A distribution as pip would leave it."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hpcbench.tasks]\n{points}\n")
    (site / f"{name}.py").write_text(code)


def test_built_ins_come_through_the_same_door() -> None:
    assert {"vqa", "ocr", "kie", "classification"} <= set(plugins.available("tasks"))
    for kind in plugins.REQUIRED:
        for name in plugins.available(kind):
            assert plugins.load(kind, name).api == plugins.API


def test_an_installed_package_brings_a_plugin(site: Path) -> None:
    install(
        site,
        "shout",
        "shout = shout:Shout",
        "class Shout:\n    api = 1\n    def parse(self, text, sample): ...\n",
    )
    assert plugins.load("tasks", "shout").__name__ == "Shout"


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown task plugin 'vqaa' \(did you mean 'vqa'\?\)"):
        plugins.load("tasks", "vqaa")


def test_finding_names_imports_nothing(site: Path) -> None:
    install(site, "loud", "loud = loud:Loud", "raise RuntimeError('imported')")
    assert "loud" in plugins.available("tasks")
    assert "loud" not in sys.modules


def test_a_plugin_that_lacks_a_method_is_named(site: Path) -> None:
    install(site, "mute", "mute = mute:Mute", "class Mute:\n    api = 1\n")
    with pytest.raises(EnvironmentFault, match=r"'mute'.*mute:Mute of mute.*lacks parse"):
        plugins.load("tasks", "mute")


def test_a_plugin_of_another_api_is_refused(site: Path) -> None:
    install(site, "old", "old = old:Old", "class Old:\n    api = 0\n    def parse(self): ...\n")
    with pytest.raises(EnvironmentFault, match="does not support api 1: its `api` is 0"):
        plugins.load("tasks", "old")


def test_a_plugin_whose_import_fails_says_why(site: Path) -> None:
    install(site, "needy", "needy = needy:Needy", "import not_there_at_all\n")
    with pytest.raises(EnvironmentFault, match="not_there_at_all") as caught:
        plugins.load("tasks", "needy")
    assert caught.value.remedy == (
        "install the package of 'not_there_at_all', or name it under `dependencies` in the "
        "pyproject.toml of needy"
    )


def test_an_error_on_import_names_its_line(site: Path) -> None:
    install(site, "hasty", "hasty = hasty:Hasty", "import os\n{}['x']\n")
    with pytest.raises(EnvironmentFault, match="KeyError") as caught:
        plugins.load("tasks", "hasty")
    assert str(caught.value.remedy).endswith(f", at {site / 'hasty.py'}:2")


def test_two_plugins_of_one_name_are_an_error_that_names_both(site: Path) -> None:
    install(site, "first", "same = first:A")
    install(site, "second", "same = second:B")
    with pytest.raises(EnvironmentFault, match=r"'same'.*(first|second).*(first|second)"):
        plugins.available("tasks")


def test_a_name_that_hpcbench_has_is_changed_not_uninstalled(site: Path) -> None:
    install(site, "theirs", "vqa = theirs:Vqa")
    with pytest.raises(EnvironmentFault, match=r"'vqa'") as caught:
        plugins.available("tasks")
    assert caught.value.remedy == "give yours another name"


@pytest.mark.parametrize("name", ["v../..llm", "a.b:", ":a.b", "a..b", "1a.b", "a.b:c:d", "a b.c"])
def test_what_is_no_dotted_path_is_an_unknown_plugin(name: str) -> None:
    assert plugins.find("engines", name) is None


def test_the_docs_say_of_every_kind_where_it_runs() -> None:
    page = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    reported = {row[1].strip(" `"): row[2].strip() for row in rows}
    assert reported == plugins.RUNS
    assert set(plugins.RUNS) == set(plugins.REQUIRED)
