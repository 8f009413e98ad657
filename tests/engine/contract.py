"""Behaviour of every engine, asked at its socket as hpcbench asks: each check is a sentence and a function.

A test module starts its engine once, by the command that its class gives, and runs them all:

    @pytest.fixture(scope="module")
    def engine() -> Iterator[contract.Engine]:
        with contract.started("package.module:Class", images=2) as engine:
            yield engine

    @pytest.mark.parametrize("check", contract.CHECKS)
    def test_it(engine: contract.Engine, check: str) -> None:
        contract.run(engine, check)
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema

from hpcbench.inference.client import Client
from hpcbench.schema.records import Message, Request
from hpcbench.wrapper.bodies import same_rules
from tests.cluster.lab import Lab
from tests.unit.wrapper.running import KEY, Wrapper

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples/demo/model"
"""The tiny model; its context is 1,024 tokens."""
PAGE = ROOT / "examples/demo/data/images/easy/0001.png"
READ, FIELDS = "Read all text.", "Extract all fields as JSON."
"""The prompts that the tiny model was trained on."""


# Becomes the engine, as the wrapper would start it, in whatever Python has it.
START = """\
import json, os, sys
from hpcbench import plugins
spec = plugins.EngineSpec(**json.loads(sys.argv[2]))
command = plugins.load("engines", sys.argv[1])().launch_command(spec)
print(json.dumps(command.argv[1:]), flush=True)
os.execve(command.argv[0], list(command.argv), {**os.environ, **command.env})
"""


UP_SECONDS = 800
"""An engine may take so long to answer: in bfloat16, on a busy processor without instructions for it."""


@dataclass(frozen=True)
class Engine:
    """A running engine that serves the tiny model."""

    folder: Path
    """Its socket `s`, its log, and `media`, below which requests may name files."""
    model: str = "tiny"
    schemas: bool = True
    """Whether it knows `response_format`."""

    @property
    def log(self) -> str:
        """Lines that the engine wrote; the first one is its argument list."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def media(self) -> Path:
        """Holds `page.png`, and a link `link.png` to a page elsewhere."""
        return self.folder / "media"

    def session(self) -> aiohttp.ClientSession:
        """A connection for each request: after a 500 some servers cut the one it came on."""
        connector = aiohttp.UnixConnector(str(self.folder / "s"), limit=0, force_close=True)
        # A page may take a slow processor minutes; the test's own limit ends what hangs.
        limit = aiohttp.ClientTimeout(total=None)
        return aiohttp.ClientSession("http://engine", connector=connector, timeout=limit)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text."""
        async with self.session() as session, session.get(path) as answer:
            return answer.status, await answer.text()

    async def post(self, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of a chat; greedy and short unless said otherwise."""
        async with (
            self.session() as session,
            session.post("/v1/chat/completions", json=self.body(**body)) as answer,
        ):
            return answer.status, await answer.json()

    async def answer(self, **body: Any) -> tuple[str, str, dict[str, int]]:
        """Text, reason of its end and usage of an answer that must come."""
        status, whole = await self.post(**body)
        assert status == 200, whole
        [choice] = whole["choices"]
        return choice["message"]["content"], choice["finish_reason"], whole["usage"]

    async def stream(self, **body: Any) -> list[dict[str, Any]]:
        """All events of a streamed answer, which must end as it should."""
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with (
            self.session() as session,
            session.post("/v1/chat/completions", json=self.body(**body)) as answer,
        ):
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            lines = [line.strip() async for line in answer.content if line.strip()]
        assert lines.pop() == b"data: [DONE]"
        return [json.loads(line.removeprefix(b"data: ")) for line in lines]

    def body(self, **changes: Any) -> dict[str, Any]:
        """The body of a request."""
        plain = {"model": self.model, "temperature": 0, "max_tokens": 64, "messages": ask(READ)}
        return {**plain, **changes}


@contextlib.contextmanager
def started(
    engine: str, python: str | Path = sys.executable, schemas: bool = True, **spec: Any
) -> Iterator[Engine]:
    """An engine with the tiny model, ready; ended with all it started when the block ends.

    `engine` is its name or dotted path, `python` the interpreter that has it, `spec` more of its EngineSpec.
    """
    one = Engine(Path(tempfile.mkdtemp(prefix="he")), schemas=schemas)  # sockets hold 107 bytes
    one.media.mkdir()
    (one.media / "page.png").write_bytes(PAGE.read_bytes())
    (one.media / "link.png").symlink_to(PAGE)
    reported = {"model_path": str(MODEL), "model_name": one.model, "socket": str(one.folder / "s")}
    reported |= {"dtype": "float32", "media_root": str(one.media), "cpus": 2, **spec}
    with (one.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(python), "-c", START, engine, json.dumps(reported)],
            env={
                **os.environ, "PYTHONPATH": _path(), "HOME": str(one.folder),
                # What vLLM found out about an architecture: it starts a process for that once.
                "VLLM_CACHE_ROOT": str(Lab.current().home / "vllm-cache"),
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        asyncio.run(_healthy(one, process))
        yield one
    finally:
        for end in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        shutil.rmtree(one.folder, ignore_errors=True)


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


async def _healthy(engine: Engine, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, engine.log[-3000:]
        with contextlib.suppress(OSError, aiohttp.ClientError):
            if (await engine.get("/health"))[0] == 200:
                return
        await asyncio.sleep(0.2)
    raise AssertionError(f"the engine is not up after {UP_SECONDS} s: {engine.log[-3000:]}")


def leaves_nothing(end: str, python: Path, engine: str, **body: Any) -> set[str]:
    """Load an engine under a wrapper in its Python and end it ("unload", "kill"): nothing stays on the node.

    Returns the names of the files in its folder while it ran.
    """
    wrapper = Wrapper(ROOT, python=str(python))
    own = wrapper.folder / "e"
    asked = {"engine": engine, "model_path": str(MODEL), "model_name": "tiny", "dtype": "float32"}

    async def life() -> set[str]:
        async with wrapper.control() as control:
            pid = (await control.loaded({**asked, **body}))["pid"]
            code, answer = await control.chat(model="tiny", max_tokens=4, messages=ask("Hello"))
            assert code == 200, answer
            client = Client(str(wrapper.socket), KEY, "tiny", rules=same_rules)
            async with client:  # the worker's, by the direct route
                assert await client.take("direct") == "direct"
                page, fields = Message("user", READ, (PAGE,)), {"max_tokens": 4, "temperature": 0}
                own_way = await client.ask(Request("s", (page,), fields, timeout=600))
                assert (own_way.outcome, own_way.times.tokens[-1:]) == ("truncated", (4,)), own_way
            held, names = _held(_session(pid)), {path.name for path in own.rglob("*")}
            weights = str(body.get("model_path", MODEL))
            outside = {path for path in held if path.startswith("/tmp/")}
            assert {p for p in outside if not p.startswith((str(wrapper.folder), weights))} == set()
            if end == "kill":
                os.kill(pid, signal.SIGKILL)
                await control.until("failed")
            assert (await control.unload())[0] == 200
            assert list(own.iterdir()) == []
            shared = {path for path in held if path.startswith("/dev/shm/")}
            assert {path for path in shared if Path(path).exists()} == set()
            return names

    try:
        return asyncio.run(life())  # the test's own limit ends what hangs
    finally:
        wrapper.close()


def _session(leader: int) -> list[int]:
    found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in found if _session_of(pid) == leader]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _held(pids: Sequence[int]) -> set[str]:
    """Paths of the files that processes have open or mapped, and of the sockets they are bound to."""
    table = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    bound = {f"socket:[{line[6]}]": line[7] for line in table if len(line) > 7}
    found = set()
    for pid in pids:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        found |= {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = str(link.readlink())
                found.add(bound.get(target, target))
    return {path for path in found if not path.endswith(" (deleted)")}


def ask(text: str, *images: str | Path) -> list[dict[str, Any]]:
    """One message of images, as files or URLs, and a text."""
    urls = [image if isinstance(image, str) else data_uri(image.read_bytes()) for image in images]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def data_uri(image: bytes) -> str:
    """An image as its own address."""
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


async def refused(engine: Engine, status: int, *bodies: dict[str, Any]) -> list[str]:
    """Messages of requests that must get this status, in OpenAI's form."""
    messages = []
    for body in bodies:
        found, answer = await engine.post(**body)
        assert found == status, (found, answer)
        assert answer["error"]["message"] and "type" in answer["error"]
        messages.append(answer["error"]["message"])
    return messages


async def is_healthy_and_names_its_model(engine: Engine) -> None:
    assert (await engine.get("/health"))[0] == 200
    status, text = await engine.get("/v1/models")
    assert (status, json.loads(text)["data"][0]["id"]) == (200, engine.model)


async def reads_a_page(engine: Engine) -> None:
    text, reason, usage = await engine.answer(messages=ask(READ, PAGE))
    assert "LUCAS" in text and "30364" in text
    assert reason == "stop"
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def streams_the_same_answer_and_its_usage(engine: Engine) -> None:
    text, reason, usage = await engine.answer(messages=ask(READ, PAGE))
    for _ in range(20):
        *events, last = await engine.stream(messages=ask(READ, PAGE))
        choices = [choice for event in events for choice in event["choices"]]
        pieces = [piece for choice in choices if (piece := choice["delta"].get("content"))]
        assert "".join(pieces) == text
        reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
        assert reasons == [reason]
        assert last["choices"] == []
        assert {name: last["usage"][name] for name in ("prompt_tokens", "completion_tokens")} == {
            name: usage[name] for name in ("prompt_tokens", "completion_tokens")
        }
        # Several tokens come in one event where the machine is busy, but not every time.
        if len(pieces) > 3:
            return
    raise AssertionError("every answer came in three pieces or fewer")


async def counts_every_image(engine: Engine) -> None:
    tokens = []
    for images in range(3):
        body = {"messages": ask(READ, *[PAGE] * images), "max_tokens": 1}
        tokens.append((await engine.answer(**body))[2]["prompt_tokens"])
    assert tokens[1] - tokens[0] == tokens[2] - tokens[1] > 20


async def refuses_what_is_no_image(engine: Engine) -> None:
    half = PAGE.read_bytes()[:60]
    bad = [data_uri(b"no image"), data_uri(half), "data:image/png;base64,%%", "ftp://host/page.png"]
    await refused(engine, 400, *({"messages": ask(READ, url)} for url in bad))


async def fetches_nothing_from_the_network(engine: Engine) -> None:
    fetched = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal fetched
        fetched += 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        urls = [f"http://{host}:{port}/page.png" for host in ("127.0.0.1", "localhost")]
        await refused(engine, 400, *({"messages": ask(READ, url)} for url in urls))
    assert fetched == 0


async def reads_files_below_its_root_only(engine: Engine) -> None:
    named, _, _ = await engine.answer(messages=ask(READ, f"file://{engine.media}/page.png"))
    sent, _, _ = await engine.answer(messages=ask(READ, PAGE))
    assert named == sent
    outside = [PAGE, engine.media / "../log", engine.media / "link.png"]
    await refused(engine, 400, *({"messages": ask(READ, f"file://{path}")} for path in outside))


async def refuses_what_is_longer_than_its_context(engine: Engine) -> None:
    messages = await refused(engine, 400, {"messages": ask("word " * 3000)}, {"max_tokens": 5000})
    assert all("1024" in message for message in messages), messages


async def does_not_know_another_model(engine: Engine) -> None:
    [message] = await refused(engine, 404, {"model": "other"})
    assert "other" in message


async def refuses_a_request_without_messages(engine: Engine) -> None:
    await refused(engine, 400, {"messages": []})


async def keeps_the_limit_of_tokens(engine: Engine) -> None:
    _, reason, usage = await engine.answer(messages=ask(READ, PAGE), max_tokens=3)
    assert (reason, usage["completion_tokens"]) == ("length", 3)


async def ends_at_a_stop_text_and_leaves_it_out(engine: Engine) -> None:
    full, _, _ = await engine.answer(messages=ask(READ, PAGE))
    stop = full[5:7]
    text, reason, _ = await engine.answer(messages=ask(READ, PAGE), stop=[stop])
    assert (text, reason) == (full[: full.index(stop)], "stop")


async def leave(engine: Engine) -> None:
    """Ask for an answer of 800 tokens, and leave at its beginning."""
    body = engine.body(messages=ask(READ, PAGE), max_tokens=800, stream=True, ignore_eos=True)
    async with (
        engine.session() as session,
        session.post("/v1/chat/completions", json=body) as answer,
    ):
        await answer.content.readany()


async def is_free_again_when_clients_leave(engine: Engine) -> None:
    await asyncio.gather(*(leave(engine) for _ in range(8)))
    _, reason, _ = await asyncio.wait_for(engine.answer(max_tokens=1), 20)
    assert reason == "length"


async def answers_many_at_once_as_one_by_one(engine: Engine) -> None:
    pages = sorted(PAGE.parent.glob("*.png"))[:6]
    alone = [(await engine.answer(messages=ask(READ, page)))[0] for page in pages]
    together = await asyncio.gather(*(engine.answer(messages=ask(READ, page)) for page in pages))
    assert [text for text, _, _ in together] == alone


async def keeps_to_a_schema(engine: Engine) -> None:
    # left to itself the model tells three fields of this page
    names = {"name": {"type": "string"}, "code": {"type": "string"}}
    schema = {"type": "object", "properties": names, "required": list(names)}
    schema["additionalProperties"] = False
    described = {"name": "fields", "schema": schema, "strict": True}
    body = {"messages": ask(FIELDS, PAGE), "max_tokens": 96}
    body["response_format"] = {"type": "json_schema", "json_schema": described}
    if not engine.schemas:
        await refused(engine, 400, body)
        return
    text, reason, _ = await engine.answer(**body)
    assert reason == "stop"
    jsonschema.validate(json.loads(text), schema)


async def answers_with_a_json_object(engine: Engine) -> None:
    body = {"messages": ask(READ, PAGE), "max_tokens": 96}  # left to itself it tells plain text
    body["response_format"] = {"type": "json_object"}
    if not engine.schemas:
        await refused(engine, 400, body)
        return
    text, reason, _ = await engine.answer(**body)
    assert text.lstrip().startswith("{")
    assert reason == "length" or isinstance(json.loads(text), dict)


Check = Callable[[Engine], Awaitable[None]]
_ALL: Sequence[Check] = (
    is_healthy_and_names_its_model, reads_a_page, streams_the_same_answer_and_its_usage,
    counts_every_image, refuses_what_is_no_image, fetches_nothing_from_the_network,
    reads_files_below_its_root_only,
    refuses_what_is_longer_than_its_context, does_not_know_another_model,
    refuses_a_request_without_messages, keeps_the_limit_of_tokens,
    ends_at_a_stop_text_and_leaves_it_out, is_free_again_when_clients_leave,
    answers_many_at_once_as_one_by_one, keeps_to_a_schema, answers_with_a_json_object,
)  # fmt: skip
CHECKS: dict[str, Check] = {check.__name__: check for check in _ALL}
"""All checks by name."""


def run(engine: Engine, check: str, seconds: float = 120) -> None:
    """Run one of them."""

    async def limited() -> None:
        await asyncio.wait_for(CHECKS[check](engine), seconds)

    asyncio.run(limited())
