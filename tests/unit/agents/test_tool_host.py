"""The process that runs tools: every bad tool is a typed result, and nothing else suffers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.agents import confine, frames, tool_host
from hpcbench.agents.tool_host import PreparedEnvironment, ToolHost
from hpcbench.agents.tools import ToolResult
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.site import ContainerSite
from tests.unit.agents.bad_tools import PNG
from tests.unit.agents.looping import Loop, looping

HERE = "tests.unit.agents.bad_tools"
MEMORY = 0.5

NO_NAMESPACES = (
    "import ctypes, errno\n"
    "from hpcbench.agents import confine\n"
    "confine._refused = lambda wanted: errno.EPERM\n"
)

SLOW_HOST = (
    "import time\n"
    "from hpcbench.agents import tool_process\n"
    "def slow(host, asked, start=tool_process.Host._start):\n"
    "    start(host, asked)\n"
    "    time.sleep(0.5)\n"
    "tool_process.Host._start = slow\n"
)


def entry(name: str, cls: str, **options: object) -> dict[str, object]:
    return {"name": name, "plugin": f"{HERE}:{cls}", "options": options, "idempotent": None}


class Tools:
    """A process of tools, with short calls of it."""

    def __init__(self, run: Loop, host: ToolHost, said: list[str]) -> None:
        self.run, self.host, self.said = run, host, said

    def call(
        self, what: str, number: int = 0, *, tool: str = "bad", seconds: float = 10.0
    ) -> ToolResult:
        arguments = {"what": what, "number": number}
        return self.run(self.host.call(tool, arguments, [Path("/a.png")], seconds))


@contextlib.contextmanager
def started(run: Loop, outside: Path) -> Iterator[Tools]:
    said = list[str]()
    entries = [entry("bad", "Bad", outside=str(outside)), entry("kept", "Stateless")]

    async def make() -> ToolHost:
        host = ToolHost(
            entries,
            PreparedEnvironment(None, ContainerSite()),
            memory_gb=MEMORY,
            at_once=4,
            say=said.append,
        )
        await host.start()
        return host

    host = run(make())
    try:
        yield Tools(run, host, said)
    finally:
        run(host.close())


@pytest.fixture(scope="module")
def run() -> Iterator[Loop]:
    with looping() as loop:
        yield loop


@pytest.fixture(scope="module")
def tools(run: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with started(run, tmp_path_factory.mktemp("outside") / "file") as found:
        yield found


def namespaces() -> bool:
    """Whether this machine permits them."""
    probe = "from hpcbench.agents import confine; print(confine._refused(0x70020000))"
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return said.stdout.strip() == "0"


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="no namespaces for users here")


def test_specs_come_from_the_classes(tools: Tools) -> None:
    spec = tools.host.specs[0]
    assert (spec.name, spec.idempotent) == ("bad", False)
    assert spec.description == "Does what it is asked to do, however bad."
    assert spec.schema["properties"]["number"] == {"default": 0, "type": "integer"}
    assert spec.origin == f"{HERE}:Bad"


@pytest.mark.parametrize(
    ("what", "number", "kind", "text"),
    [
        ("fine", 7, "ok", "fine 7"),
        ("cannot", 1, "error", "not on Sundays"),
        ("cannot", 2, "error", "there is no image 2; there are: only 1"),
        ("raises", 0, "raised", r"ZeroDivisionError: .* \(.*bad_tools.py:\d+\)"),
        ("exits", 3, "exited", "its process ended with exit code 3"),
        ("exits", 0, "exited", "its process ended with exit code 0"),
        ("leaves", 0, "exited", r"it called sys.exit\('enough'\)"),
        ("closes", 0, "exited", "its process went on without a connection, and was killed"),
        ("prints", 0, "ok", "printed"),
        ("wrong", 0, "result", "it returned NoneType, .*"),
        ("wrong", 1, "result", "it returned dict, .*"),
        ("wrong", 2, "result", "it returned an empty list, .*"),
        ("wrong", 3, "result", "it returned bytes that are no image"),
        ("wrong", 4, "result", "it returned int, .*"),
        ("wrong", 5, "result", "it returned int, .*"),
        ("large", 0, "size", r"its result has 256.0 MiB of text; at most 1 MiB"),
        ("large", 1, "size", r"its result has 128.0 MiB of images; at most 64 MiB"),
        ("takes", 0, "memory", "it needs more than 0.5 GiB of memory"),
        ("grows", 0, "memory", "it needs more than 0.5 GiB of memory"),
        ("garbles", 0, "exited", "its process sent bytes that are no result: of another call"),
        ("garbles", 2, "exited", "its process sent bytes that are no result: .*"),
        ("garbles", 4, "exited", "its process sent bytes that are no result: not an object .*"),
        ("garbles", 5, "exited", "its process sent bytes that are no result: .*"),
        ("garbles", 6, "size", "its process sent a message of 8192 MiB"),
        ("deep", 0, "raised", "RecursionError: .*"),
        ("no_such", 0, "raised", "AttributeError: .*"),
        ("threads", 0, "ok", "started"),
        ("lies", 0, "ok", "mine"),
        ("lies", 1, "size", r"its result has 2.0 MiB of text; at most 1 MiB"),
        ("lies", 2, "ok", r"half \?"),
        ("lies", 3, "result", "it returned bytes that are no image"),
        ("lies", 4, "size", "its process sent 1000000 images"),
        ("many", 0, "size", "its result has 1000 images; at most 64"),
        ("digs", 0, "ok", "dug"),
        ("becomes", 0, "exited", "its process went on without a connection, and was killed"),
        ("interrupts", 0, "raised", "KeyboardInterrupt: .*"),
        ("interrupts", 1, "raised", "GeneratorExit: .*"),
        ("interrupts", 2, "raised", "CancelledError: .*"),
        ("mutters", 0, "raised", r"Mute: \(its text cannot be read\) .*"),
        ("mutters", 1, "error", r"\(its text cannot be read\)"),
        ("mutters", 2, "raised", r"ValueError: half \? .*"),
        ("mutters", 3, "error", r"half \?"),
        ("goes_on", 0, "memory", "it needs more than 0.5 GiB of memory"),
    ],
)
@pytest.mark.parametrize("tool", ["bad", "kept"])
def test_a_bad_tool_is_a_typed_result(
    tools: Tools, what: str, number: int, kind: str, text: str, tool: str
) -> None:
    result = tools.call(what, number, tool=tool)
    assert (result.kind, bool(re.fullmatch(text, result.text))) == (kind, True), result
    assert tools.call("fine", tool=tool) == ToolResult("ok", "fine 0", (), pytest.approx(0, abs=1))


def test_a_crash_names_its_signal(tools: Tools) -> None:
    result = tools.call("crashes")
    assert (result.kind, result.text) == ("exited", "its process was ended by SIGSEGV")


def test_text_and_images_come_back_in_order(tools: Tools) -> None:
    result = tools.call("both")
    assert (result.text, result.images) == ("seen\nand", (PNG, PNG + b"2"))


@pytest.mark.parametrize("what", ["hangs", "spins"])
def test_what_takes_too_long_is_killed(tools: Tools, what: str) -> None:
    result = tools.call(what, seconds=0.3)
    assert (result.kind, result.text) == ("time", "it did not end in 0.3 s, and was killed")
    assert 0.3 <= result.seconds < 5


@pytest.mark.long
def test_a_hanging_tool_keeps_no_other_waiting(tools: Tools) -> None:
    async def both() -> tuple[ToolResult, float, ToolResult]:
        host = tools.host
        hanging = asyncio.ensure_future(host.call("bad", {"what": "hangs"}, [], 2.0))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        fine = await host.call("bad", {"what": "fine"}, [], 2.0)
        return fine, time.monotonic() - began, await hanging

    fine, took, hung = tools.run(both())
    assert (fine.kind, hung.kind) == ("ok", "time")
    assert took < 1.9


def test_time_does_not_count_while_a_call_waits_for_its_turn(tools: Tools) -> None:
    async def many() -> list[ToolResult]:
        calls = (tools.host.call("bad", {"what": "hangs"}, [], 0.2) for _ in range(8))
        return await asyncio.gather(*calls)

    results = tools.run(many())
    assert {one.kind for one in results} == {"time"}
    assert all(one.seconds < 0.2 * 8 for one in results)


def test_a_cancelled_call_is_killed(tools: Tools) -> None:
    async def cancelled() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(tools.host.call("bad", {"what": "hangs"}, [], 50), 0.2)

    for _ in range(5):  # more than run at once
        tools.run(cancelled())
    assert tools.call("fine").kind == "ok"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "argument 'what' is missing"),
        (
            {"what": "fine", "number": "many"},
            "argument 'number': must be a whole number",
        ),
        ({"what": "fine", "wht": 1}, "there is no argument 'wht'"),
        ({"what": 3, "number": []}, "argument 'what': .*; argument 'number': .*"),
        ({"what": "fine" * 10}, "argument 'what': .*"),
        ({"what": "fine\ud800", "number": 10**400}, "argument .*"),
    ],
)
def test_wrong_arguments_are_reported_to_the_model(
    tools: Tools, arguments: dict[str, object], text: str
) -> None:
    result = tools.run(tools.host.call("bad", arguments, [], 5.0))
    assert result.kind == "arguments"
    assert re.fullmatch(text, result.text), result.text


def test_the_message_about_an_unknown_tool_names_those_there_are(tools: Tools) -> None:
    result = tools.run(tools.host.call("crp", {}, [], 5.0))
    assert (result.kind, result.text) == ("unknown", "there is no tool 'crp'; there are: bad, kept")


def test_each_call_has_an_empty_folder(tools: Tools) -> None:
    assert [tools.call("leaves_files", tool="kept").text for _ in range(3)] == ["[] True"] * 3


def test_a_stateless_tool_runs_several_calls_in_a_process_and_others_do_not(tools: Tools) -> None:
    tools.call("exits", tool="kept")
    counts = [int(tools.call("pid", 1, tool="kept").text.split()[1]) for _ in range(3)]
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]
    tools.call("raises", tool="kept")  # its process is replaced
    assert tools.call("pid", 1, tool="kept").text == "0 1"


@pytest.mark.parametrize("tool", ["bad", "kept"])
def test_the_time_of_a_call_is_not_the_tools_own_word(tools: Tools, tool: str) -> None:
    assert 0 <= tools.call("lies", tool=tool).seconds < 10


@pytest.mark.long
@needs_namespaces
def test_calls_at_once_neither_see_nor_fill_each_others_folders(tools: Tools) -> None:
    async def both(first: str, second: str, after: float) -> list[ToolResult]:
        async def call(what: str, number: int, wait: float) -> ToolResult:
            await asyncio.sleep(wait)
            return await tools.host.call("bad", {"what": what, "number": number}, [], 60)

        return await asyncio.gather(call(first, 3, 0), call(second, 1, after))

    seen = tools.run(both("looks_beside", "looks_beside", 0))
    assert [one.text for one in seen] == ["1", "1"]
    filled = tools.run(both("fills_and_waits", "fills", 2))
    assert [(one.kind, one.text) for one in filled] == [("ok", "filled")] * 2
    result = tools.call("litters", seconds=60)
    assert (result.kind, "No space left" in result.text) == ("raised", True), result


def test_nothing_of_the_callers_environment_is_seen(tools: Tools) -> None:
    names = set(tools.call("environment").text.split())
    allowed = {*confine.KEPT, "HOME", "TMPDIR", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"}
    assert names <= allowed | {"PYTHONSAFEPATH", "CUDA_VISIBLE_DEVICES"}


@needs_namespaces
def test_where_namespaces_are_permitted_nothing_is_reached(tools: Tools) -> None:
    assert tools.said == []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        result = tools.call("connects", server.getsockname()[1])
    assert (result.kind, "unreachable" in result.text) == ("raised", True), result
    result = tools.call("calls_out")
    assert (result.kind, "unreachable" in result.text) == ("raised", True), result
    result = tools.call("writes")
    assert (result.kind, "Read-only" in result.text) == ("raised", True), result
    result = tools.call("spies", os.getpid())
    assert (result.kind, "PermissionError" in result.text) == ("raised", True), result
    result = tools.call("fills", 2 * confine.SCRATCH_MIB)
    assert (result.kind, "No space left" in result.text) == ("raised", True), result
    assert tools.call("kills_host", seconds=0.5).kind == "time"
    assert tools.said == []


def gone(pids: set[int], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


def family(root: int) -> set[int]:
    """A process's descendants."""
    found, todo = set[int](), [root]
    while todo:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{(at := todo.pop())}/task/{at}/children").read_text()
            inside = set(map(int, text.split())) - found
            found |= inside
            todo += inside
    return found


def falls_to(count: int, root: int, seconds: float = 5.0) -> bool:
    """Whether a process has so few descendants before long."""
    end = time.monotonic() + seconds
    while len(family(root)) > count and time.monotonic() < end:
        time.sleep(0.02)
    return len(family(root)) <= count


@pytest.mark.parametrize("number", [0, 3])
def test_no_process_outlives_its_call(tools: Tools, number: int) -> None:
    root = tools.host._running._process.pid  # type: ignore[union-attr]
    tools.call("fine", tool="kept")
    before = len(family(root))
    result = tools.call("forks", number)
    assert result.kind == ("exited" if number else "ok")
    assert falls_to(before, root)


FORKS = """\
import os, time
from hpcbench.agents import confine
there = int(open("/proc/loadavg").read().split()[3].partition("/")[2])
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)  # root has no limit
confine.limit_processes(20 - there)
made = []
try:
    while len(made) < 200:
        if (child := os.fork()) == 0:
            time.sleep(60), os._exit(0)
        made.append(child)
except BlockingIOError:
    print("no more")
for child in made:
    os.kill(child, 9)
"""


def test_a_call_that_forks_without_end_leaves_processes_to_others() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert done.stdout == "no more\n"


@pytest.mark.long
def test_a_process_of_tools_that_was_killed_is_started_again(run: Loop, tmp_path: Path) -> None:
    with started(run, tmp_path / "x") as tools:
        process = tools.host._running._process  # type: ignore[union-attr]
        inside = family(process.pid)

        async def killed() -> list[ToolResult]:
            hanging = [tools.host.call("bad", {"what": "hangs"}, [], 20.0) for _ in range(2)]
            asyncio.get_running_loop().call_later(0.3, os.kill, process.pid, signal.SIGKILL)
            return await asyncio.gather(*hanging)

        assert [one.kind for one in run(killed())] == ["gone", "gone"]
        assert gone(inside)
        assert tools.call("fine").kind == "ok"
        assert tools.said[-1] == "the process of tools ended; it is started again"


@pytest.mark.long
def test_tools_end_with_their_worker(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from hpcbench.agents.tool_host import PreparedEnvironment, ToolHost\n"
        "from hpcbench.schema.site import ContainerSite\n"
        "async def main():\n"
        f"    tool = {{'name': 'bad', 'plugin': '{HERE}:Bad', 'options': {{}}, 'idempotent': None}}\n"
        "    host = ToolHost([tool], PreparedEnvironment(None, ContainerSite()), memory_gb=1)\n"
        "    await host.start()\n"
        "    call = asyncio.ensure_future(host.call('bad', {'what': 'hangs'}, [], 100))\n"
        "    await host.call('bad', {'what': 'forks'}, [], 100)\n"
        "    print('running', flush=True)\n"
        "    await call\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environment
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"running\n"
        inside = family(worker.pid)
        assert len(inside) >= 2
        worker.kill()
    assert gone(inside)


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_host, "_START", NO_NAMESPACES + tool_host._START)


@pytest.mark.long
def test_without_namespaces_a_line_says_what_does_not_hold_and_the_rest_does(
    run: Loop, tmp_path: Path, no_namespaces: None
) -> None:
    with started(run, tmp_path / "outside") as tools:
        (said,) = tools.said
        assert said.startswith(
            "tools can use the network, write files, reach other processes here: "
        )
        assert tools.call("writes").kind == "ok"
        assert tools.call("calls_out").kind == "ok"
        assert tools.call("hangs", seconds=0.3).kind == "time"
        assert tools.call("grows").kind == "memory"
        root = tools.host._running._process.pid  # type: ignore[union-attr]
        for number, kind in ((0, "ok"), (3, "exited")):
            before = len(family(root))
            assert tools.call("forks", number).kind == kind
            assert falls_to(before, root)
        result = tools.call("fills", 2 * confine.SCRATCH_MIB)
        assert (result.kind, "File too large" in result.text) == ("raised", True), result
        assert tools.call("digs").kind == "ok"
        assert tools.call("fine").kind == "ok"
        assert tools.call("kills_host").kind == "gone"
        assert tools.call("fine").kind == "ok"
        assert len(tools.said) == 2


@pytest.mark.long
def test_without_namespaces_a_child_that_ends_before_its_result_is_read_has_given_it(
    run: Loop, tmp_path: Path, no_namespaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_host, "_START", SLOW_HOST + tool_host._START)
    with started(run, tmp_path / "outside") as tools:
        assert tools.call("fine").kind == "ok"
        result = tools.call("exits", 3)
        assert (result.kind, result.text) == ("exited", "its process ended with exit code 3")


@needs_namespaces
@pytest.mark.long
def test_kernels_that_change_one_mount_at_a_time_make_all_read_only(
    run: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "from hpcbench.agents import confine\nconfine._MOUNT_SETATTR = 100000\n"
    monkeypatch.setattr(tool_host, "_START", old + tool_host._START)
    with started(run, tmp_path / "outside") as tools:
        assert tools.said == []
        for number in (0, 1):
            result = tools.call("writes", number)
            assert (result.kind, "Read-only" in result.text) == ("raised", True), result
        assert tools.call("leaves_files").text == "[] True"


@pytest.mark.long
def test_code_of_a_model_runs_only_where_it_is_isolated(run: Loop, no_namespaces: None) -> None:
    host = ToolHost(
        [entry("sharp", "Untrusted")], PreparedEnvironment(None, ContainerSite()), memory_gb=1
    )
    with pytest.raises(EnvironmentFault, match="'sharp' runs code of the model, and tools can use"):
        run(host.start())


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "reported"),
    [
        (entry("x", "Slow"), "tool 'x' .* cannot be constructed: ValueError: no table"),
        (entry("x", "Silent"), "tool 'x' .* has no docstring"),
        (entry("x", "Missing"), "cannot be imported: AttributeError"),
    ],
)
def test_a_tool_that_cannot_be_used_is_one_line(
    run: Loop, tool: dict[str, object], reported: str
) -> None:
    host = ToolHost([tool], PreparedEnvironment(None, ContainerSite()), memory_gb=1)
    with pytest.raises(EnvironmentFault, match=reported):
        run(host.start())


def test_messages_survive_any_cut() -> None:
    whole = frames.pack({"kind": "ok", "text": "é\ud800"}, [b"", b"abc"]) * 2
    for size in (1, 3, 7, len(whole)):
        buffer, found = frames.Buffer(), []
        for start in range(0, len(whole), size):
            buffer.add(whole[start : start + size])
            while (message := buffer.take()) is not None:
                found.append(message)
        assert [one[1] for one in found] == [(b"", b"abc")] * 2


def test_a_message_that_is_too_large_is_refused_before_it_is_there() -> None:
    buffer = frames.Buffer()
    buffer.add(frames.HEAD.pack(10, 2**31))
    with pytest.raises(frames.TooLarge):
        buffer.take()
