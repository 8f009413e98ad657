"""The images of a trajectory as files on the node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hpcbench.agents.trajectory import Trajectory
from hpcbench.schema.agent import Agent
from hpcbench.schema.records import Sample
from hpcbench.worker.trajectories import _Files

PNG = b"\x89PNG\r\n\x1a\n page"


@pytest.mark.parametrize("copied", [False, True])
def test_tools_in_images_see_copies_and_nothing_beside_them(tmp_path: Path, copied: bool) -> None:
    data, near = tmp_path / "data", tmp_path / "near"
    data.mkdir()
    near.mkdir()
    (data / "page.png").write_bytes(PNG)
    (data / "answers.jsonl").write_text("right")
    sample = Sample("s1", (data / "page.png", PNG), {}, (), "d")
    files = _Files(near, sample, Trajectory("s1"), copied=copied)
    files.write_pages()
    first, second = files.pages()
    assert [first.read_bytes(), second.read_bytes()] == [PNG, PNG]
    assert first.is_relative_to(near) is copied
    assert second.is_relative_to(near)
    asyncio.run(files.remove())
    assert list(near.iterdir()) == []
    assert (data / "page.png").exists()


@pytest.mark.parametrize(
    ("tools", "has"),
    [
        (["crop"], False),
        ([{"name": "python", "image": "a.sif"}], True),
        ([{"name": "s", "mcp": {"command": ["x"], "image": "a.sif"}}], True),
        ([{"name": "s", "mcp": {"command": ["x"]}}], False),
    ],
)
def test_an_agent_says_whether_any_tool_is_in_an_image(tools: list[object], has: bool) -> None:
    assert Agent.model_validate({"tools": tools}).has_images is has
    roles = {"agents": {"a": {"prompt": "x", "tools": tools}}, "tools": []}
    assert Agent.model_validate(roles).has_images is has
