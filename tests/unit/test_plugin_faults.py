"""An error in somebody's plugin is not called a bug of hpcbench."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.cli import main as command


def test_an_error_that_began_in_a_plugin_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "somebodys_prompts.py"
    module.write_text("def build():\n    return {}['doc_type']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("mine", "somebodys_prompts:build", "hpcbench.prompts")
    monkeypatch.setattr(plugins, "available", lambda _: {"mine": point})
    monkeypatch.setattr(command, "_run", lambda _: "somebodys_prompts:build_all")
    module.write_text(module.read_text() + "def build_all(_):\n    return build()\n")
    assert command.main(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"hpcbench: a plugin failed at {module}:2: KeyError: 'doc_type'")
    assert "correct the plugin" in said
    assert "bug" not in said.splitlines()[0]
