"""Servers of the Model Context Protocol: two that people use, and one that does all that it must not do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.agents.mcp_server import McpTools
from hpcbench.agents.tool_host import PreparedEnvironment
from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.agent import McpServer
from hpcbench.schema.site import ContainerSite
from tests.unit.agents.bad_server import PNG
from tests.unit.agents.looping import Loop, looping
from tests.unit.agents.test_tool_host import family, gone, needs_namespaces

BAD = (sys.executable, str(Path(__file__).with_name("bad_server.py")))


class Server:
    def __init__(self, run: Loop, box: McpTools, said: list[str], log: list[str]) -> None:
        self.run, self.box, self.said, self.log = run, box, said, log

    def call(self, name: str, seconds: float = 20.0, **arguments: object) -> ToolResult:
        return self.run(self.box.call(name, arguments, [], seconds))

    @property
    def pid(self) -> int:
        return self.box._running._process.pid  # type: ignore[union-attr, no-any-return]


@contextlib.contextmanager
def started(run: Loop, *command: str, only: tuple[str, ...] = (), **env: str) -> Iterator[Server]:
    said, log = list[str](), list[str]()

    async def make() -> McpTools:
        box = McpTools(
            "shelf", McpServer(command=command, env=env), PreparedEnvironment(None, ContainerSite()),
            only=only, memory_gb=1, say=said.append, log=log.append,
        )  # fmt: skip
        try:
            await box.start()
        except BaseException:
            await box.close()
            raise
        return box

    box = run(make())
    try:
        yield Server(run, box, said, log)
    finally:
        run(box.close())


@pytest.fixture(scope="module")
def run() -> Iterator[Loop]:
    with looping() as loop:
        yield loop


@pytest.fixture(scope="module")
def bad(run: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port, outside = listening.getsockname()[1], tmp_path_factory.mktemp("out") / "file"
        with started(run, *BAD, PORT=str(port), OUTSIDE=str(outside)) as found:
            yield found


@pytest.mark.long
def test_the_server_of_times_answers(run: Loop) -> None:
    with started(run, "python", "-m", "mcp_server_time", "--local-timezone", "UTC") as server:
        (convert, now) = sorted(server.box.specs, key=lambda spec: spec.name)
        assert (convert.name, now.name) == ("convert_time", "get_current_time")
        assert now.origin.startswith("mcp-time ")
        result = server.call("get_current_time", timezone="Europe/Paris")
        assert (result.kind, '"timezone": "Europe/Paris"' in result.text) == ("ok", True)
        result = server.call("get_current_time", timezone="Europe/Nowhere")
        assert (result.kind, "Invalid timezone" in result.text) == ("error", True)
        result = server.call("get_current_time")
        assert (result.kind, result.text) == ("arguments", "'timezone' is a required property")
        result = server.call("get_current_time", timezone=3)
        assert (result.kind, result.text) == (
            "arguments", "argument 'timezone': 3 is not of type 'string'",
        )  # fmt: skip


@pytest.mark.long
def test_the_server_of_git_reads_a_repository_and_cannot_change_it(
    run: Loop, tmp_path: Path
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first one"], check=True)
    only = ("git_log", "git_create_branch")
    command = ("python", "-m", "mcp_server_git", "--repository", str(tmp_path))
    with started(run, *command, only=only) as server:
        assert {spec.name: spec.idempotent for spec in server.box.specs} == {
            "git_log": True, "git_create_branch": False,
        }  # fmt: skip
        assert "first one" in server.call("git_log", repo_path=str(tmp_path)).text
        unknown = server.call("git_status", repo_path=str(tmp_path))
        assert (unknown.kind, unknown.text) == (
            "unknown", "there is no tool 'git_status'; there are: git_log, git_create_branch",
        )  # fmt: skip


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_the_server_with_everything_answers(run: Loop, tmp_path: Path) -> None:
    """A server of another language: Node.js reserves far more memory than it uses."""
    package = "@modelcontextprotocol/server-everything"
    npm = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(tmp_path),
        package,
    ]
    subprocess.run(npm, check=True)
    script = tmp_path / "node_modules" / package / "dist/index.js"
    with started(run, "node", str(script), "stdio") as server:
        assert server.call("echo", message="hi").text == "Echo: hi"
        image = server.call("get-tiny-image")
        assert (image.kind, len(image.images)) == ("ok", 1)
        assert server.call("get-sum", a="x", b=2).kind == "arguments"
        slow = server.call("trigger-long-running-operation", seconds=1, duration=30, steps=2)
        assert slow.kind == "time"
        assert server.call("echo", message="again").text == "Echo: again"


def test_texts_and_images_come_back_in_order(bad: Server) -> None:
    result = bad.call("look", number=3)
    assert (result.kind, result.text, result.images) == ("ok", "look 3\nagain", (PNG, PNG))
    spec = next(spec for spec in bad.box.specs if spec.name == "look")
    assert spec.idempotent


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("raise", "error", "not on Sundays"),
        ("grow", "error", "MemoryError: "),
        ("wrong", "result", "its result is of another form than it says: "),
        ("large", "size", "its result has 2.0 MiB of text; at most 1 MiB"),
        ("print", "ok", "print"),
        ("scratch", "ok", "scratch"),
        ("die", "gone", "the server 'shelf' ended"),
        ("huge", "size", "its result has more than 32 MiB"),
        ("chatter", "ok", "chatter"),
        ("close", "gone", "the server 'shelf' ended"),
    ],
)
def test_a_bad_server_is_a_typed_result(bad: Server, what: str, kind: str, text: str) -> None:
    result = bad.call("do", what=what)
    assert (result.kind, text in result.text) == (kind, True), result
    assert bad.call("do", what="fine").text == "fine"


def test_a_server_that_sends_news_without_end_is_ended(
    bad: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.agents.mcp_server.MOST_NEWS", 200)
    assert bad.call("do", what="flood").kind == "gone"
    assert bad.call("do", what="fine").text == "fine"


def test_a_name_that_no_model_can_write_is_changed(bad: Server) -> None:
    result = bad.call("odd_name_of_a_tool")
    assert (result.kind, result.text) == ("ok", "odd.name/of a tool")


def test_an_image_that_is_none_is_reported(bad: Server) -> None:
    result = bad.call("no_image")
    assert (result.kind, result.text) == ("result", "it returned bytes that are no image")


def test_a_schema_that_takes_for_ever_to_check_keeps_nothing_waiting(bad: Server) -> None:
    result = bad.call("slow_schema", what="a" * 40 + "!", laughs=1)
    assert (result.kind, result.text) == ("ok", "slow_schema")
    result = bad.call("slow_schema", laughs=1)
    assert (result.kind, result.text) == ("arguments", "'what' is a required property")


def test_a_result_is_not_checked_by_the_servers_own_schema(bad: Server) -> None:
    result = bad.call("slow_result")
    assert (result.kind, result.text) == ("ok", "slow_result")


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        inner = {"allOf": [inner], "unevaluatedProperties": False}
    return inner


ENDLESS: list[dict[str, Any]] = [
    nested(40),
    {"$schema": "http://json-schema.org/draft-04/schema#", "enum": [{"n": n} for n in range(30_000)]},
    {"properties": {"a": {"uniqueItems": True}}},
    {"properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(3000)]}}}},
]  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize("schema", ENDLESS, ids=["nested", "broken", "unique", "many"])
def test_no_schema_keeps_the_worker_from_other_work(run: Loop, schema: dict[str, Any]) -> None:
    box = McpTools(
        "shelf", McpServer(command=("x",)), PreparedEnvironment(None, ContainerSite()), memory_gb=1
    )
    box.specs = (ToolSpec("look", "", schema),)
    arguments = {"a": [{"n": n} for n in range(30_000)]}
    result = run(box.call("look", arguments, [], 5))
    assert result.kind in ("gone", "arguments"), "there is no such server"


@pytest.mark.long
def test_a_server_that_reads_nothing_costs_a_call_no_more_than_its_time(bad: Server) -> None:
    async def both() -> list[ToolResult]:
        """The second call's arguments are larger than the pipe."""
        calls = (("hang", 3.0), ("x" * 2**22, 0.5))
        return await asyncio.gather(
            *(bad.box.call("do", {"what": what}, [], seconds) for what, seconds in calls)
        )

    bad.call("do", what="fine")
    assert [one.kind for one in bad.run(both())][1] == "time"
    assert bad.call("do", what="fine").kind in ("ok", "gone")
    assert bad.call("do", what="fine").text == "fine"


def test_what_a_server_prints_goes_to_the_log_up_to_a_limit(bad: Server) -> None:
    bad.call("do", what="print")
    assert bad.call("do", what="fine").kind == "ok"
    assert any(line.startswith("shelf: yyy") for line in bad.log)
    assert sum(map(len, bad.log)) < 2 * 2**20


@pytest.mark.long
def test_a_server_that_hangs_is_ended_and_started_again(bad: Server) -> None:
    bad.call("do", what="fine")
    before = bad.pid
    result = bad.call("do", seconds=0.3, what="hang")
    assert (result.kind, result.text) == ("time", "it did not end in 0.3 s")
    assert bad.call("do", what="fine").kind in ("ok", "gone")
    assert bad.call("do", what="fine").text == "fine"
    assert bad.pid != before


@needs_namespaces
def test_a_server_reaches_nothing(bad: Server) -> None:
    assert bad.call("do", what="connect").kind == "error"
    result = bad.call("do", what="write")
    assert (result.kind, "Read-only" in result.text) == ("error", True), result
    names = set(bad.call("do", what="environment").text.split())
    assert {"PORT", "OUTSIDE"} <= names
    assert not {name for name in names if name.startswith(("PYTEST", "SLURM", "HPCBENCH"))}


@pytest.mark.long
def test_a_server_that_always_dies_is_not_started_for_ever(run: Loop) -> None:
    with started(run, *BAD) as server:
        kinds = [server.call("do", what="die") for _ in range(7)]
        assert {one.kind for one in kinds} == {"gone"}
        assert kinds[-1].text == "the server 'shelf' does not run: it ended 5 times in a row"


@pytest.mark.long
def test_tools_that_change_are_not_called(run: Loop, tmp_path: Path) -> None:
    with started(run, *BAD, str(tmp_path / "changed")) as server:
        (tmp_path / "changed").touch()
        assert server.call("do", what="die").kind == "gone"
        result = server.call("do", what="fine")
        assert (result.kind, "its tools have changed" in result.text) == ("gone", True)


def test_no_process_of_a_server_is_left(run: Loop) -> None:
    with started(run, *BAD) as server:
        inside = {server.pid, *family(server.pid)}
    assert gone(inside)


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        (("no-such-program",), "the server 'shelf' cannot be used: .* cannot be started: No such"),
        (("python", "-c", "import sys; sys.exit('no table')"), "it last said: no table"),
        (("python", "-c", "print('hello')"), "the server 'shelf' cannot be used: "),
        (("cat",), "the server 'shelf' "),
    ],
)
def test_a_server_that_cannot_be_used_is_one_line(
    run: Loop, command: tuple[str, ...], reported: str
) -> None:
    with pytest.raises(EnvironmentFault, match=reported), started(run, *command):
        pass


def test_a_server_that_says_nothing_is_given_up(run: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.agents.mcp_server.START_SECONDS", 1.0)
    with (
        pytest.raises(EnvironmentFault, match="does not list its tools in 1 s"),
        started(run, "sleep", "100"),
    ):
        pass


def test_a_tool_that_is_not_there_is_reported(run: Loop) -> None:
    with (
        pytest.raises(EnvironmentFault, match="unknown tool 'lok' of server 'shelf'"),
        started(run, *BAD, only=("lok",)),
    ):
        pass


@pytest.mark.long
def test_a_cancelled_call_costs_no_other_more_than_the_server(bad: Server) -> None:
    async def cancelled() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(bad.box.call("do", {"what": "hang"}, [], 50), 0.2)

    bad.call("do", what="fine")
    bad.run(cancelled())
    assert bad.call("do", seconds=0.5, what="fine").kind == "time"
    assert bad.call("do", what="fine").kind in ("ok", "gone")
    assert bad.call("do", what="fine").text == "fine"
