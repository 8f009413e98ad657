"""The Hugging Face engine over HTTP, as a child process: what a client sees of batches, schemas, files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpcbench.engines.huggingface import HuggingFaceEngine
from hpcbench.plugins import EngineSpec
from tests.sockets import listens

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "examples/demo/data/images/easy"

pytestmark = pytest.mark.engine


class Engine:
    """The engine as the wrapper starts it, without the wrapper."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.socket = folder / "s"
        spec = EngineSpec(
            model_path=str(ROOT / "examples/demo/model"), model_name="tiny", socket=str(self.socket),
            options=options, media_root=str(PAGES),
        )  # fmt: skip
        command = HuggingFaceEngine().launch_command(spec)
        env = {**os.environ, "OMP_NUM_THREADS": "1", **command.env}
        self.process = subprocess.Popen(list(command.argv), cwd=ROOT, env=env)
        until = time.monotonic() + 100
        while not listens(self.socket):
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(str(self.socket), limit=0)
        return aiohttp.ClientSession("http://engine", connector=connector)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("e"), max_batch=4, batch_wait_ms=200)
    yield engine
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(20) == 0


def page(number: int) -> str:
    return sorted(PAGES.glob("*.png"))[number].as_uri()


def body(url: str | None = None, **settings: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": "Read all text."}]
    if url is not None:
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    messages = [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "max_tokens": 40, "temperature": 0, **settings}


async def post(session: aiohttp.ClientSession, body: Any) -> tuple[int, Any]:
    async with session.post("/v1/chat/completions", json=body) as answer:
        return answer.status, await answer.json()


async def stream(session: aiohttp.ClientSession, body: Any) -> list[Any]:
    """The events of a stream, but for `[DONE]` at its end."""
    async with session.post("/v1/chat/completions", json={**body, "stream": True}) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        *lines, done = (await answer.text()).split("\n\n")[:-1]
    assert done == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def figures(session: aiohttp.ClientSession) -> dict[str, float]:
    async with session.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def text(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


async def test_requests_that_come_together_share_batches_and_answers_stay_the_same(
    engine: Engine,
) -> None:
    async with engine.session() as session:
        alone = [await post(session, body(page(n))) for n in range(8)]
        before = await figures(session)
        together = await asyncio.gather(*(post(session, body(page(n))) for n in range(8)))
        after = await figures(session)
        assert [text(answer) for _, answer in together] == [text(answer) for _, answer in alone]
        size = "hpcbench_engine_batch_size"
        batches = after[f"{size}_count"] - before[f"{size}_count"]
        assert after[f"{size}_sum"] - before[f"{size}_sum"] == 8
        assert 2 <= batches < 8
        assert after[f'{size}_bucket{{le="4"}}'] == after[f"{size}_count"]  # max_batch


async def test_each_token_of_a_stream_can_carry_the_tokens_so_far(engine: Engine) -> None:
    async with engine.session() as session:
        options = {"continuous_usage_stats": True, "include_usage": True}
        asked = body(page(2))  # Cyrillic: characters of several tokens
        reported = await stream(session, {**asked, "stream_options": options})
        plain, (_, whole) = await stream(session, asked), await post(session, asked)
    [*tokens, end], last = reported[1:-1], reported[-1]
    assert [one["usage"]["completion_tokens"] for one in tokens] == list(range(1, len(tokens) + 1))
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["usage"] == last["usage"] == whole["usage"]
    assert last["choices"] == []
    pieces = ["".join(one["choices"][0]["delta"]["content"] for one in tokens)]
    pieces.append("".join(one["choices"][0]["delta"].get("content", "") for one in plain))
    assert pieces == [text(whole)] * 2
    assert not any("usage" in one for one in plain)
    assert all(one["choices"][0]["delta"].get("content") for one in plain[1:-1])


async def test_streams_of_one_batch_run_side_by_side(engine: Engine) -> None:
    order: list[int] = []

    async def read(session: aiohttp.ClientSession, number: int) -> None:
        settings = {"stream": True, "ignore_eos": True, "max_tokens": 200}
        asked = body(page(number), **settings)
        async with session.post("/v1/chat/completions", json=asked) as answer:
            async for _ in answer.content:
                order.append(number)

    async with engine.session() as session:
        await asyncio.gather(*(read(session, number) for number in range(3)))
    changes = sum(a != b for a, b in zip(order, order[1:], strict=False))
    assert changes > 20  # one after the other, it would be two


async def test_a_schema_holds_for_the_request_that_has_one(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    async with engine.session() as session:
        (_, bound), (_, free), (status, error) = await asyncio.gather(
            post(session, body(page(0), response_format=form, max_tokens=200)),
            post(session, body(page(0))),
            post(session, body(page(1), response_format={"type": "json_schema"})),
        )
    assert list(json.loads(text(bound))) == ["total"]
    assert "{" not in text(free)
    assert (status, error["error"]["code"]) == (400, "invalid_request")


async def test_errors_have_openais_form_and_a_code_to_rely_on(engine: Engine) -> None:
    cases = {
        "media_not_allowed": body("file:///etc/passwd"),
        "invalid_image": body("data:image/png;base64,QUJD"),
        "context_length_exceeded": body(page(0), max_tokens=5000),
        "unsupported": body(page(0), logit_bias={"1": 1}),
        "invalid_request": body(page(0), n=2),
        "model_not_found": {**body(), "model": "other"},
    }
    async with engine.session() as session:
        asked = {code: await post(session, one) for code, one in cases.items()}
        streamed = await post(session, {**cases["invalid_image"], "stream": True})
        assert streamed[0] == 400
        counted = await figures(session)
    for code, (status, answer) in asked.items():
        assert status == (404 if code == "model_not_found" else 400)
        assert answer["error"]["code"] == code
        assert answer["error"]["type"] == "invalid_request_error"
        assert answer["error"]["message"]
        assert counted[f'hpcbench_engine_requests_total{{outcome="{code}"}}'] >= 1


async def test_a_client_that_leaves_is_counted_and_frees_its_place(engine: Engine) -> None:
    async with engine.session() as session:
        before = await figures(session)
        asked = body(page(0), max_tokens=900, ignore_eos=True, stream=True)
        async with session.post("/v1/chat/completions", json=asked) as answer:
            await answer.content.readany()
            assert (await figures(session))["hpcbench_engine_requests_running"] == 1
        await post(session, body(page(1), max_tokens=1))
        after = await figures(session)
        name = 'hpcbench_engine_requests_total{outcome="cancelled"}'
        assert after[name] == before.get(name, 0) + 1
        assert after["hpcbench_engine_requests_waiting"] == 0
        drawn = 'hpcbench_engine_tokens_total{of="completion"}'
        assert after[drawn] - before[drawn] < 900


async def test_memory_and_threads_are_reported(engine: Engine) -> None:
    async with engine.session() as session:
        reported = await figures(session)
    assert reported["hpcbench_engine_torch_threads"] == 1
    assert reported["hpcbench_engine_weights_bytes"] > 4e6
    assert reported["hpcbench_engine_host_peak_bytes"] > 1e8
    assert reported["hpcbench_engine_gpu_reserved_peak_bytes"] >= 0
    assert reported["hpcbench_engine_max_batch"] == 4
