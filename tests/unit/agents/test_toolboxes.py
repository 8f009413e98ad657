"""The toolbox of an agent: names, places, locks; and what is checked before anything runs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from PIL import Image

from hpcbench.agents.tool_host import PreparedEnvironment, ToolEnvironment
from hpcbench.agents.toolboxes import (
    Tools,
    entries_of,
    locked,
    places_of,
    plugin_specs,
    specs_of,
    toolbox_of,
)
from hpcbench.agents.tools import ResultKind, ToolSpec
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import Environment, ToolContext, ToolError, available, mismatch
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.cross_checks import Checks
from hpcbench.registry.source import parse, read
from hpcbench.schema.agent import Agent, McpServer, ToolEntry
from hpcbench.schema.site import ContainerSite
from tests.conftest import ROOT

T = TypeVar("T")

SERVER = str(Path(__file__).with_name("bad_server.py"))


def server(*only: str, name: str = "shelf", **more: Any) -> ToolEntry:
    return ToolEntry(name=name, mcp=McpServer(command=(sys.executable, SERVER), **more), only=only)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def flat(agent: Agent) -> list[ToolSpec]:
    return [spec for tools in specs_of(agent).values() for spec in tools]


@pytest.mark.long
def test_all_tools_of_an_agent_answer_from_one_box(tmp_path: Path) -> None:
    agent = Agent(tools=("crop", server("look", "do"), "calculator", "python"))

    async def work() -> None:
        said = list[str]()
        box = await toolbox_of(agent, near=str(tmp_path), say=said.append)
        try:
            assert [one.name for one in box.specs] == ["crop", "look", "do", "calculator", "python"]
            assert [one.name for one in box.specs] == [one.name for one in listed]
            (note,) = said
            assert note.startswith(
                "tool 'python' runs code of the model without an image: it can read"
            )
            assert locked(box.specs) == locked(listed)
            assert (box.names("shelf"), box.names("crop")) == (("look", "do"), ("crop",))
            path = tmp_path / "page.png"
            Image.new("L", (100, 100)).save(path)
            crop = await box.call("crop", {"box": [0, 0, 500, 500]}, [path], 20)
            assert (crop.kind, crop.text) == ("ok", "Part of image 1, 50 × 50 pixels.")
            found = await asyncio.gather(
                box.call("calculator", {"expression": "6 * 7"}, [], 20),
                box.call("python", {"code": "print(len(images))\nimages[0]"}, [path], 20),
                box.call("python", {"code": "x = 1\nx / 0"}, [], 20),
                box.call("look", {"number": 1}, [], 20),
                box.call("no_image", {}, [], 20),
                box.call("calculator", {"expression": {1, 2}}, [], 20),
            )
            assert [one.kind for one in found] == [
                "ok", "ok", "error", "ok", "unknown", "arguments",
            ]  # fmt: skip
            assert found[0].text == "42"
            assert found[1].text == f"1\n{str(path)!r}"
            assert found[2].text.endswith("ZeroDivisionError: division by zero")
            assert 'File "<snippet>", line 2' in found[2].text
            assert "hpcbench" not in found[2].text
        finally:
            await box.close()
        assert [path.name for path in tmp_path.iterdir()] == ["page.png"]

    listed = flat(agent)
    run(work())


@pytest.mark.long
async def test_a_snippet_shows_its_images(tmp_path: Path) -> None:
    code = (
        "from PIL import Image\n"
        "for name in ('b', 'a'):\n    Image.new('L', (9, 9)).save(f'{name}.png')\n"
    )
    box = await toolbox_of(Agent(tools=("python",)))
    try:
        shown = await box.call("python", {"code": code}, [], 20)
        assert (shown.kind, shown.text, len(shown.images)) == ("ok", "", 2)
        printed = await box.call("python", {"code": "print('x' * 10**6)"}, [], 20)
        assert printed.text.endswith("… 980001 characters more")
        silent = await box.call("python", {"code": "x = 1"}, [], 20)
        assert silent.text == "(it printed nothing)"
        broken = await box.call("python", {"code": "1 +"}, [], 20)
        assert (broken.kind, "SyntaxError" in broken.text) == ("error", True)
    finally:
        await box.close()


def test_plugins_are_listed_without_being_started() -> None:
    (crop, calculator) = plugin_specs(Agent(tools=("crop", server(), "calculator")))
    assert crop.schema["required"] == ["box"]
    assert crop.origin.startswith("hpcbench.agents.image_tools:Crop of ")
    assert "title" not in str(crop.schema)
    assert calculator.idempotent
    changed = ToolEntry(name="sum", plugin="calculator", idempotent=False)
    (spec,) = flat(Agent(tools=(changed,)))
    assert (spec.name, spec.idempotent) == ("sum", False)
    assert spec.sha256 != calculator.sha256


def test_a_role_means_the_entry_of_the_whole() -> None:
    special = ToolEntry(name="look", plugin="crop")
    agent = Agent(
        tools=(special, "zoom"),
        agents={"a": {"prompt": "A", "tools": ["look", "page"]}, "b": {"prompt": "B"}},  # type: ignore[dict-item]
    )
    assert [one.name for one in entries_of(agent)] == ["look", "zoom", "page"]
    assert entries_of(agent)[0] is special
    assert [one.name for one in entries_of(agent, {"zoom"})] == ["look", "page"]


def test_entries_of_one_name_must_not_differ() -> None:
    with pytest.raises(UserError, match="two tools are called 'look', and differ"):
        entries_of(Agent(tools=("look", ToolEntry(name="look", plugin="crop"), "look")[1:] + (
            ToolEntry(name="look", plugin="zoom"),
        )))  # fmt: skip


@pytest.mark.long
def test_equal_names_of_a_plugin_and_a_server_name_both() -> None:
    agent = Agent(tools=(ToolEntry(name="look", plugin="crop"), server("look")))
    with pytest.raises(EnvironmentFault) as caught:
        specs_of(agent)
    assert caught.value.message.startswith(
        "two tools are called 'look': hpcbench.agents.image_tools"
    )
    assert caught.value.message.endswith(" and bad 1.0 (server 'shelf')")
    with pytest.raises(EnvironmentFault, match="hpcbench's own and bad 1.0"):
        run(toolbox_of(Agent(tools=(server("look"),)), beside={"look"}))


@pytest.mark.long
def test_tools_are_as_locked_or_a_line_says_so(tmp_path: Path) -> None:
    agent = Agent(tools=("calculator",))
    now = locked(flat(agent))

    async def with_locks(locks: dict[str, str]) -> None:
        box = await toolbox_of(agent, locked=locks, near=str(tmp_path))
        await box.close()

    run(with_locks(now))
    for locks, reported in (
        ({"calculator": "0" * 64}, "tool 'calculator' of .* is not as it was when the plan was"),
        ({}, "tool 'calculator' of .* was not there when the plan was submitted"),
        ({**now, "crop": "0"}, "tool 'crop' is gone since the plan was submitted"),
    ):
        with pytest.raises(EnvironmentFault, match=reported):
            run(with_locks(locks))
    assert not [*tmp_path.iterdir()]


def test_places_are_what_must_be_prepared() -> None:
    agent = Agent(tools=(
        "crop",
        ToolEntry(name="python", image="docker://python:3.12"),
        ToolEntry(name="zoom", image="docker://python:3.12"),
        server(packages=("a==1", "b")),
    ))  # fmt: skip
    wanted = (ToolEnvironment("docker://python:3.12"), ToolEnvironment(None, ("a==1", "b")))
    assert places_of(agent) == wanted
    for tools, what in (
        (agent.tools[1:2], "'python' needs image docker://python:3.12, which was not prepared"),
        (agent.tools[3:], "'shelf' needs packages a==1, b, which was not prepared"),
    ):
        with pytest.raises(EnvironmentFault, match=what):
            run(toolbox_of(Agent(tools=tools)))


@pytest.mark.long
def test_a_prepared_place_gives_its_packages(tmp_path: Path) -> None:
    (tmp_path / "shelf_server.py").write_text(Path(SERVER).read_text())
    entry = ToolEntry(
        name="shelf", mcp=McpServer(command=("python", "-m", "shelf_server"), packages=("shelf",))
    )
    environment = Environment("venv", sys.executable, None, packages=str(tmp_path))

    async def listed() -> Tools:
        rooms = {
            ToolEnvironment(None, ("shelf",)): PreparedEnvironment(environment, ContainerSite())
        }
        box = await toolbox_of(Agent(tools=(entry,)), rooms)
        await box.close()
        return box

    assert "look" in {spec.name for spec in run(listed()).specs}


@pytest.mark.long
def test_a_tool_that_is_missing_on_the_node_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="unknown tool plugin 'calculatr' .did you mean"):
        run(toolbox_of(Agent(tools=("calculatr",)), near=str(tmp_path)))
    assert not [*tmp_path.iterdir()]


AGENT = """\
tools:
  - crop
  - crp
  - {name: sum, plugin: calculator, options: {digits: 3}}
  - {name: look, plugin: zoom}
  - {name: look, plugin: page}
  - name: shelf
    mcp:
      command: [shelf]
      packages: ["shelf server"]
      env: {API_KEY: abcdefgh, OTHER: "${env:NO_SUCH_VARIABLE}"}
  - {name: create_plan, plugin: crop}
agents:
  reader: {prompt: Read., tools: [look, rotte]}
"""


def test_mistakes_are_found_at_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(AGENT)
    source = read(path)
    checks = Checks(Catalog([tmp_path]), found := [])
    agent = Agent.model_validate(source.data)
    checks.agents.agent(agent, source, ())
    assert [str(one).replace(f"{path}:", "") for one in found] == [
        "3:5: unknown tool plugin 'crp' (did you mean 'crop'?)",
        "4:47: unknown option 'digits' (there are: none)",
        "6:12: two tools are called 'look', and differ (give one of them another `name`, and name its "
        "`plugin`)",
        "10:18: 'shelf server' is not a requirement (write NAME==VERSION, as pip does)",
        "11:22: API_KEY contains a secret in plain text (write ${env:API_KEY} and export it, or "
        "${file:PATH})",
        "11:39: ${env:NO_SUCH_VARIABLE}: the variable is not set (export it before you submit)",
        "12:12: 'create_plan' is a tool of hpcbench itself (choose another name)",
        "14:41: unknown tool plugin 'rotte' (did you mean 'rotate'?)",
    ]


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ({"name": "a", "mcp": {"command": ["x"]}, "plugin": "crop"}, "cannot have `plugin`"),
        ({"name": "a", "mcp": {"command": ["x"]}, "image": "i"}, "`image`; write it below `mcp`"),
        ({"name": "a", "only": ["b"]}, "has `only`, which needs `mcp`"),
        ({"name": "a b"}, "String should match pattern"),
        ({"name": "a", "mcp": {"command": []}}, "at least 1 item"),
    ],
)
def test_an_entry_has_one_source(entry: dict[str, Any], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        ToolEntry.model_validate(entry)


def test_the_page_shows_an_agent_and_a_tool_that_work() -> None:
    page = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    page = page[page.index("\n## Tools") :]
    shown, code = (
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0]
        for language in ("yaml", "python")
    )
    agent = Agent.model_validate(parse(Path("shown.yaml"), shown).data["agent"])
    assert [one.name for one in entries_of(agent)] == ["crop", "calculator", "python", "clock"]
    names = dict[str, Any]()
    exec(code, names)
    tool = names["Lookup"]({})
    assert not mismatch("tools", names["Lookup"])
    assert tool.call(tool.Arguments(name="ACME"), ToolContext()) == "4711"
    with pytest.raises(ToolError, match="there is no supplier 'X'"):
        tool.call(tool.Arguments(name="X"), ToolContext())
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {*available("tools"), *get_args(ResultKind)} <= listed
