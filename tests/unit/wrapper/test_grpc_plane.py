"""The wrapper's gRPC plane, asked by Triton's own client: the answers of HTTP, and its key before them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import numpy
import pytest
from aiohttp import web
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient import grpc as triton
from tritonclient.grpc import aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from hpcbench.open_inference import chat, protobuf_classes
from hpcbench.wrapper import grpc_server
from hpcbench.wrapper.__main__ import main
from hpcbench.wrapper.supervisor import State
from tests.mock_openai import Script, Server, image_hashes
from tests.unit.inference.talking import TEXT
from tests.unit.wrapper.plane import Plane, before, scripted
from tests.unit.wrapper.running import KEY, ROOT, Wrapper, gone

HEADERS = {"x-api-key": KEY}
PROTO = ROOT / "hpcbench/open_inference/inference.proto"


class Asked(Plane):
    """The plane, and Triton's client for it."""

    engine: Server

    def triton(self) -> triton_aio.InferenceServerClient:
        """A client that hpcbench has nothing to do with."""
        return triton_aio.InferenceServerClient(f"unix:{self.socket}")

    async def stream(
        self, *requests: dict[str, Any], headers: dict[str, str] = HEADERS
    ) -> list[tuple[Any, Any]]:
        """All responses to requests sent on one stream; each is (result, error)."""

        async def asking() -> AsyncIterator[dict[str, Any]]:
            for one in requests:
                yield one

        async with self.triton() as client:
            try:
                return [one async for one in client.stream_infer(asking(), headers=headers)]
            except grpc.aio.AioRpcError as error:  # Triton's client does not translate it here
                if error.details() != "Internal error from Core":
                    raise InferenceServerException(f"{error.code()} {error.details()}") from None
        # A stream that ends while gRPC's client sends its first message can lose its status there.
        return await self.stream(*requests, headers=headers)


@contextlib.asynccontextmanager
async def plane(script: Script | None = None, **options: Any) -> AsyncIterator[Asked]:
    """The plane in this process, with a model that is ready."""
    async with scripted(script, **options) as (found, engine):
        one = Asked(found.socket.parent, found.supervisor, found.engine_socket)
        one.engine = engine
        yield one


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def asked(*images: bytes, stream: bool = True, **fields: Any) -> dict[str, Any]:
    """Request of Triton's client: a chat with these images."""
    parts: list[Any] = [
        {"type": "image_url", "image_url": {"url": f"tensor:{number}"}}
        for number in range(len(images))
    ]
    content = [*parts, {"type": "text", "text": "Read."}] if images else "Read."
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], **fields}
    body |= {"stream": True} if stream else {}
    inputs = [tensor("request", json.dumps(body).encode())]
    inputs += [tensor("images", *images)] if images else []
    return {"model_name": "tiny", "inputs": inputs, "request_id": fields.get("user", "")}


def tensor(name: str, *elements: bytes) -> triton.InferInput:
    """A BYTES tensor."""
    found = triton.InferInput(name, [len(elements)], "BYTES")
    found.set_data_from_numpy(numpy.array(elements, dtype=object))
    return found


def for_output(*names: str) -> dict[str, Any]:
    """The part of a request that names its outputs."""
    return {"outputs": [triton.InferRequestedOutput(name) for name in names]}


def chunks(responses: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """The engine's chunks in responses without an error."""
    found = []
    for result, error in responses:
        assert error is None, error
        texts = result.as_numpy("response")
        found += [json.loads(text) for text in ([] if texts is None else texts)]
    return found


def text_of(responses: list[tuple[Any, Any]]) -> str:
    """The text of an answer."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(responses)]
    return "".join(delta.get("content", "") for delta in deltas)


async def over_http(engine: Path, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that the engine itself gives."""
    connector = aiohttp.UnixConnector(str(engine))
    async with (
        aiohttp.ClientSession("http://e", connector=connector) as session,
        session.post("/v1/chat/completions", json=body) as answer,
    ):
        lines = [line[6:] async for line in answer.content if line.startswith(b"data: {")]
        return [json.loads(line) for line in lines]


def test_a_server_and_its_model_say_what_they_are() -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            assert await client.is_server_live(headers=HEADERS)
            assert await client.is_server_ready(headers=HEADERS)
            assert await client.is_model_ready("tiny", headers=HEADERS)
            assert not await client.is_model_ready("other", headers=HEADERS)
            server = await client.get_server_metadata(headers=HEADERS)
            assert (server.name, list(server.extensions)) == ("hpcbench", ["model_stream_infer"])
            model = await client.get_model_metadata("tiny", headers=HEADERS)
            inputs = [(one.name, one.datatype, list(one.shape)) for one in model.inputs]
            assert inputs == [("request", "BYTES", [1]), ("images", "BYTES", [-1])]
            outputs = [(one.name, one.datatype, list(one.shape)) for one in model.outputs]
            assert outputs == [("response", "BYTES", [-1]), ("body", "BYTES", [1])]
            with pytest.raises(InferenceServerException, match="NOT_FOUND"):
                await client.get_model_metadata("other", headers=HEADERS)
            one.supervisor.route = None
            assert not await client.is_server_ready(headers=HEADERS)
            assert not await client.is_model_ready("tiny", headers=HEADERS)

    run(journey())


def test_a_stream_has_the_chunks_of_the_engine_and_the_head_of_its_answer() -> None:
    async def journey() -> None:
        async with plane() as one:
            options = {"include_usage": True, "continuous_usage_stats": True}
            found = await one.stream(asked(stream_options=options, user="r7"))
            body = {"stream": True, "stream_options": options}
            assert chunks(found) == await over_http(one.engine_socket, body)
            responses = [result.get_response() for result, _ in found]
            assert {response.id for response in responses} == {"r7"}
            head = responses[0].parameters
            assert head["http-status"].int64_param == 200
            assert float(head["x-latency-ms"].string_param) > 0
            finals = [one.parameters["triton_final_response"].bool_param for one in responses]
            assert finals == [False] * (len(finals) - 1) + [True]
            assert one.supervisor.meter.served == 1

    run(journey())


def test_an_answer_may_be_asked_for_as_the_bytes_of_http() -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            found = await one.stream(asked() | for_output("body"))
            elements = [result.as_numpy("body") for result, _ in found]
            text = b"".join(piece[0] for piece in elements if piece is not None)
            events = [event for event in text.decode().split("\n\n") if event]
            assert [json.loads(event[6:]) for event in events[:-1]] == chunks(
                await one.stream(asked())
            )
            assert events[-1] == "data: [DONE]"
            finals = [
                "triton_final_response" in result.get_response().parameters for result, _ in found
            ]
            assert finals == [False] * (len(finals) - 1) + [True]
            # an answer that is no stream, by both methods
            request = asked(stream=False) | for_output("body")
            whole = await client.infer(**request, headers=HEADERS)
            [_, (piece, _)] = await one.stream(request)
            answers = [json.loads(one.as_numpy("body")[0])["choices"] for one in (whole, piece)]
            assert answers[0] == answers[1]

    run(journey())


def test_metrics_come_as_over_http() -> None:
    async def journey() -> None:
        async with plane(Script(fast=True)) as one:  # all in one block
            found = chunks(await one.stream(asked(), headers={**HEADERS, "x-metrics": "1"}))
            assert found[-1]["choices"] == [] and found[-1]["metrics"]["ttfb_ms"] > 0

    run(journey())


def test_an_engine_packs_no_answer_for_a_caller_of_grpc() -> None:
    async def journey() -> None:
        async with plane(Script(plan=["packed"])) as one:
            packs = {**HEADERS, "accept-encoding": "gzip"}
            [piece] = chunks(await one.stream(asked(stream=False), headers=packs))
            assert piece["choices"][0]["message"]["content"] == "".join(Script().pieces)

    run(journey())


def test_an_answer_in_one_piece() -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            result = await client.infer(**asked(stream=False), headers=HEADERS)
            [text] = result.as_numpy("response")
            answer = json.loads(text)
            assert answer["choices"][0]["message"]["content"] == "".join(Script().pieces)
            assert answer["metrics"]["latency_ms"] > 0
            [piece] = chunks(await one.stream(asked(stream=False)))
            assert piece["choices"] == answer["choices"]

    run(journey())


def test_images_reach_the_engine_as_over_http() -> None:
    async def journey() -> None:
        async with plane() as one:
            images = (b"\x89PNG\r\n\x1a\n" + os.urandom(1000), b"\xff\xd8\xff" + os.urandom(777))
            await one.stream(asked(*images))
            [seen] = one.engine.seen
            assert image_hashes(seen["raw"]) == [hashlib.sha256(i).hexdigest() for i in images]
            parts = json.loads(seen["raw"])["messages"][0]["content"]
            heads = [part["image_url"]["url"].partition(",")[0] for part in parts[:2]]
            assert heads == ["data:image/png;base64", "data:image/jpeg;base64"]

    run(journey())


def test_an_engine_that_reads_files_gets_each_image_in_one_until_its_answer_ends(
    tmp_path: Path,
) -> None:
    async def journey() -> None:
        async with plane(Script(gap=0.05), images=tmp_path, limit=2**22) as one:
            images = (os.urandom(1000), os.urandom(2**20))
            asking = asyncio.ensure_future(one.stream(asked(*images)))
            while not (one.engine.events or asking.done()):
                await asyncio.sleep(0.005)
            parts = json.loads(one.engine.seen[0]["raw"])["messages"][0]["content"]
            files = [Path(part["image_url"]["url"].removeprefix("file://")) for part in parts[:2]]
            assert [file.read_bytes() for file in files] == list(images)
            assert {file.parent for file in files} == {tmp_path}
            await asking
            assert not any(file.exists() for file in files)
            # where no file can be written, a data URI goes
            one.supervisor.route = replace(one.supervisor.route, images=tmp_path / "gone")  # type: ignore[type-var]
            await one.stream(asked(*images))
            hashes = [hashlib.sha256(image).hexdigest() for image in images]
            assert image_hashes(one.engine.seen[1]["raw"]) == hashes

    run(journey())


def test_a_file_is_written_again_once_its_image_was_answered(tmp_path: Path) -> None:
    async def journey() -> None:
        async with plane(Script(gap=0.02), images=tmp_path) as one:
            named: list[Path] = []
            for image in (os.urandom(9000), os.urandom(500), os.urandom(20_000)):
                asking = asyncio.ensure_future(one.stream(asked(image)))
                while len(one.engine.seen) == len(named):
                    await asyncio.sleep(0.005)
                content = json.loads(one.engine.seen[-1]["raw"])["messages"][0]["content"]
                named.append(Path(content[0]["image_url"]["url"].removeprefix("file://")))
                assert named[-1].read_bytes() == image
                places = {named[-1].stat().st_ino}
                await asking
                # the one file that there is has a name that no engine knew
                [kept] = tmp_path.iterdir()
                assert {kept.stat().st_ino} == places and kept not in named
            assert len(set(named)) == 3

    run(journey())


@pytest.mark.parametrize("act", ["cut", "status:500"])
def test_a_file_that_the_engine_may_still_read_is_not(act: str, tmp_path: Path) -> None:
    async def journey() -> None:
        async with plane(Script(plan=[act]), images=tmp_path) as one:
            await one.stream(asked(b"a page"))
            assert list(tmp_path.iterdir()) == []

    run(journey())


@pytest.mark.long
def test_a_page_of_20_mb_passes() -> None:
    async def journey() -> None:
        async with plane(limit=2**25) as one:
            page = os.urandom(20_000_000)
            await one.stream(asked(page))
            assert image_hashes(one.engine.seen[0]["raw"]) == [hashlib.sha256(page).hexdigest()]

    run(journey())


def test_requests_of_one_stream_are_answered_side_by_side() -> None:
    async def journey() -> None:
        async with plane(Script(first=0.05)) as one:
            found = await one.stream(*(asked(user=f"r{number}") for number in range(5)))
            assert one.engine.most_active == 5
            for number in range(5):
                own = [pair for pair in found if pair[0].get_response().id == f"r{number}"]
                assert text_of(own) == "".join(Script().pieces)

    run(journey())


@pytest.mark.long
def test_512_streams_without_an_error() -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:

            async def asking() -> AsyncIterator[dict[str, Any]]:
                yield asked()

            async def ask() -> str:
                found = [r async for r in client.stream_infer(asking(), headers=HEADERS)]
                return text_of(found)

            texts = await asyncio.gather(*(ask() for _ in range(512)))
            assert set(texts) == {"".join(Script().pieces)}

    run(journey())


def test_calls_that_come_while_the_wrapper_is_busy_all_have_their_turn() -> None:
    async def journey() -> None:
        async with plane() as one:
            with grpc.insecure_channel(f"unix:{one.socket}") as channel:
                grpc.channel_ready_future(channel).result(20)
                live = channel.unary_unary(f"/{protobuf_classes.SERVICE}/ServerLive")
                calls = [live.future(b"", metadata=list(HEADERS.items())) for _ in range(2500)]
                time.sleep(1)  # the wrapper cannot begin one of them, and all arrive
                codes = Counter([await asyncio.to_thread(call.code) for call in calls])
                assert codes == {grpc.StatusCode.OK: 2500}

    run(journey())


@pytest.mark.parametrize(
    "headers", [{}, {"x-api-key": KEY[:-1]}, {"authorization": f"Basic {KEY}"}]
)
def test_nothing_answers_without_the_key(headers: dict[str, str]) -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            for ask in (
                client.is_server_live(headers=headers),
                client.get_server_metadata(headers=headers),
                client.infer(**asked(stream=False), headers=headers),
            ):
                with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                    await ask
            with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                await one.stream(asked(), headers=headers)
            assert one.engine.seen == []

    run(journey())


def test_a_bearer_token_is_the_key_and_the_engine_does_not_see_it() -> None:
    async def journey() -> None:
        async with plane() as one:
            await one.stream(asked(), headers={"authorization": f"Bearer {KEY}"})
            assert KEY not in str(one.engine.seen[0]["headers"])

    run(journey())


def test_reflection_shows_the_service_to_those_with_the_key() -> None:
    async def journey() -> None:
        async with plane() as one:
            described, refused = await asyncio.to_thread(reflected, one.socket)
            assert protobuf_classes.SERVICE in described["inference.proto"]
            assert refused is grpc.StatusCode.UNAUTHENTICATED

    run(journey())


def reflected(path: Path) -> tuple[dict[str, list[str]], grpc.StatusCode]:
    """Services that reflection lists with the key, by the file that describes them; what it says without."""
    with grpc.insecure_channel(f"unix:{path}") as channel:
        known = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(channel, WithKey()))
        described: dict[str, list[str]] = {}
        for name in known.get_services():
            described.setdefault(known.FindFileContainingSymbol(name).name, []).append(name)
        try:
            ProtoReflectionDescriptorDatabase(channel).get_services()
        except grpc.RpcError as error:
            return described, error.code()
    raise AssertionError("it answers without the key")


class WithKey(grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Adds the key to calls."""

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(metadata=[("x-api-key", KEY)]), requests)


def with_request(text: bytes) -> list[Any]:
    return [tensor("request", text)]


def odd(name: str = "request", shape: Sequence[int] = (1,), datatype: str = "BYTES") -> list[Any]:
    """A request in a tensor that is not as it should be."""
    found = tensor("request", b"{}")
    found._input.name, found._input.datatype = name, datatype
    found._input.ClearField("shape")
    found._input.shape.extend(shape)
    return [found]


CUT = tensor("request", b"{}")
CUT._raw_content = b"\xff\xff\xff\xff{}"
BLACK = tensor("images", b"x")
BLACK._raw_content = bytes(2**19)  # pixels without the length of an element before them
PICTURE = tensor("images", b"x")
PLACED = b'{"messages": [{"role": "user", "content": [{"image_url": {"url": "tensor:%s"}}]}]}'


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "there is no input request"),
        ([PICTURE], "there is no input request"),
        (odd(name="pixels"), "unknown input 'pixels': the inputs are request, images"),
        (with_request(b"{}") * 2, "the input request comes twice"),
        (odd(datatype="FP32"), "the input request must be BYTES, not 'FP32'"),
        (odd(shape=[2]), r"the input request must have the shape \[1\], not \[2\]"),
        (odd(shape=[1, 1]), r"the input request must have the shape \[1\], not \[1, 1\]"),
        ([CUT], "an element of a BYTES tensor is cut short"),
        ([*with_request(PLACED % b"0"), BLACK], "a BYTES tensor has more elements than its shape"),
        ([*with_request(PLACED % b"1"), PICTURE], "tensor:1 names no image: there are 1"),
        (with_request(PLACED % b"0"), "tensor:0 names no image: there are 0"),
        ([*with_request(PLACED % b"x"), PICTURE], "the place of an image is tensor:0"),
        ([*with_request(b'{"messages": []}'), PICTURE], "image 0 has no place tensor:0"),
        ([*with_request(b"{"), PICTURE], "the request is not JSON"),
        ([*with_request(b"[]"), PICTURE], "the request is not a JSON object"),
        ([*with_request(b"[" * 9999 + b"]" * 9999), PICTURE], "the request is nested too deeply"),
    ],
)
def test_the_answer_to_a_malformed_request_says_what_is_wrong(inputs: list[Any], said: str) -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            request = {"model_name": "tiny", "inputs": inputs}
            with pytest.raises(InferenceServerException, match=f"INVALID_ARGUMENT.*{said}"):
                await client.infer(**request, headers=HEADERS)
            # the stream stays open for the next request
            (_, error), *rest = await one.stream(request, asked())
            assert error is not None or any(e is not None for _, e in rest)
            assert len(one.engine.seen) == 1

    run(journey())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["logits"], "unknown output 'logits': the outputs are response, body"),
        (["response", "body"], "a request has one output: response or body"),
    ],
)
def test_a_request_has_one_output_that_is_known(names: list[str], said: str) -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            request = asked(stream=False) | for_output(*names)
            with pytest.raises(InferenceServerException, match=f"INVALID_ARGUMENT.*{said}"):
                await client.infer(**request, headers=HEADERS)

    run(journey())


def test_a_stream_in_model_infer_and_another_model_are_refused() -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            for request in (asked(), asked(stream=False, model_params={"stream": True})):
                with pytest.raises(InferenceServerException, match="use ModelStreamInfer"):
                    await client.infer(**request, headers=HEADERS)
            with pytest.raises(InferenceServerException, match="NOT_FOUND"):
                await client.infer(**{**asked(stream=False), "model_name": "x"}, headers=HEADERS)

    run(journey())


def test_a_message_over_the_limit_is_refused_by_its_size() -> None:
    async def journey() -> None:
        async with plane(limit=1000) as one, one.triton() as client:
            with pytest.raises(InferenceServerException, match=r"RESOURCE_EXHAUSTED.*larger than"):
                await client.infer(**asked(b"x" * 1000, stream=False), headers=HEADERS)
            chunks(await one.stream(asked(b"x" * 500)))

    run(journey())


@pytest.mark.parametrize(
    ("act", "code", "said"),
    [
        ("status:400", "INVALID_ARGUMENT", "scripted 400"),
        ("status:429 after 7", "RESOURCE_EXHAUSTED", "scripted 429"),
        ("status:500", "INTERNAL", "scripted 500"),
        ("drop", "UNAVAILABLE", "broke before it answered"),
    ],
)
def test_errors_of_the_engine_have_their_code(act: str, code: str, said: str) -> None:
    async def journey() -> None:
        async with plane(Script(plan=[act, act])) as one, one.triton() as client:
            with pytest.raises(InferenceServerException, match=f"{code}.*{said}"):
                await client.infer(**asked(stream=False), headers=HEADERS)
            for name in ("response", "body"):
                one.engine.script.plan[:] = [act]
                [(_, error)] = await one.stream(asked() | for_output(name))
                assert said in str(error)

    run(journey())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('{"error": {"message": "half \\ud83d"}}', r"half \?"),
        ('{"error": {"message": ["a", "list"]}}', r"\['a', 'list'\]"),
        ("[" * 10_000, r"\[\[\["),
        ("no JSON", "no JSON"),
        ("", ""),
    ],
)
def test_an_error_of_the_engine_in_any_words_comes_with_its_code(words: str, said: str) -> None:
    async def journey() -> None:
        async with plane(Script(plan=[f"words:{words}"] * 2)) as one, one.triton() as client:
            with pytest.raises(InferenceServerException, match=f"INVALID_ARGUMENT.*{said}"):
                await client.infer(**asked(stream=False), headers=HEADERS)
            [(_, error)] = await one.stream(asked())
            assert re.search(said, str(error))

    run(journey())


@pytest.mark.parametrize("words", ["input too long ", "入力が長すぎます "])
def test_a_long_error_of_the_engine_keeps_its_code_and_the_beginning_of_its_words(
    words: str,
) -> None:
    async def journey() -> None:
        act = "status:400:" + words * 2000  # validation errors repeat what was sent
        async with plane(Script(plan=[act] * 2)) as one, one.triton() as client:
            with pytest.raises(InferenceServerException, match=f"INVALID_ARGUMENT.*{words}"):
                await client.infer(**asked(stream=False), headers=HEADERS)
            [(_, error)] = await one.stream(asked())
            assert str(error).count(words) == 2000

    run(journey())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-note", "\u00e9"),
        ("x!odd", "1"),
        ("x-trace-bin", "abc"),
        ("grpc-status", "0"),
        pytest.param("x-long", "x" * 7000, id="long"),
    ],
)
def test_a_header_that_grpc_cannot_carry_does_not_replace_the_error(name: str, value: str) -> None:
    async def journey() -> None:
        async def refuse(request: web.Request) -> web.Response:
            error = {"error": {"message": "scripted 400"}}
            return web.json_response(error, status=400, headers={name: value})

        with tempfile.TemporaryDirectory(prefix="hb") as folder:
            app = web.Application()
            app.router.add_post("/v1/chat/completions", refuse)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.UnixSite(runner, f"{folder}/e").start()
            async with (
                before(Path(folder) / "e") as one,
                triton_aio.InferenceServerClient(f"unix:{one.socket}") as client,
            ):
                with pytest.raises(
                    InferenceServerException, match="INVALID_ARGUMENT.*scripted 400"
                ):
                    await client.infer(**asked(stream=False), headers=HEADERS, client_timeout=5)
            await runner.cleanup()

    run(journey())


def test_secrets_in_an_error_of_the_engine_are_masked() -> None:
    async def journey() -> None:
        async with plane(
            Script(plan=["status:500:top-secret-value"]), hidden=["top-secret-value"]
        ) as one:
            [(_, error)] = await one.stream(asked())
            assert "***" in str(error) and "top-secret-value" not in str(error)

    run(journey())


@pytest.mark.parametrize("state", ["empty", "failed"])
def test_without_a_model_a_call_is_unavailable(state: State) -> None:
    async def journey() -> None:
        async with plane() as one, one.triton() as client:
            one.supervisor.route, one.supervisor.state = None, state
            with pytest.raises(InferenceServerException, match=r"UNAVAILABLE.*no model is ready"):
                await client.infer(**asked(stream=False), headers=HEADERS)

    run(journey())


def test_a_client_that_leaves_ends_the_work_of_the_engine() -> None:
    async def journey() -> None:
        async with plane(Script(gap=10)) as one, one.triton() as client:

            async def asking() -> AsyncIterator[dict[str, Any]]:
                yield asked()
                await asyncio.Event().wait()

            answers = client.stream_infer(asking(), headers=HEADERS)
            await anext(answers)
            assert one.supervisor.meter.in_flight == 1
            answers.cancel()
            while not one.engine.left:
                await asyncio.sleep(0.01)
            assert one.supervisor.meter.in_flight == 0

    run(journey())


@pytest.mark.long
def test_a_client_that_pings_every_second_gets_its_late_answer() -> None:
    async def journey() -> None:
        async with plane(Script(first=5)) as one:
            pings = triton.KeepAliveOptions(
                keepalive_time_ms=1000,
                keepalive_timeout_ms=10_000,
                keepalive_permit_without_calls=True,
                http2_max_pings_without_data=0,
            )
            client = triton_aio.InferenceServerClient(f"unix:{one.socket}", keepalive_options=pings)

            async def asking() -> AsyncIterator[dict[str, Any]]:
                yield asked()

            async with client:
                found = [r async for r in client.stream_infer(asking(), headers=HEADERS)]
                assert text_of(found) == "".join(Script().pieces)

    run(journey())


def test_a_client_that_leaves_without_reading_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def journey() -> None:
        async with plane(Script(pieces=("x" * 60_000,) * 200)) as one:
            async with grpc.aio.insecure_channel(f"unix:{one.socket}") as channel:
                method = channel.stream_stream(f"/{protobuf_classes.SERVICE}/ModelStreamInfer")
                body = json.dumps({"model": "tiny", "stream": True}).encode()
                message = b"".join(chat.request("tiny", body, []))
                calls = [method(metadata=tuple(HEADERS.items())) for _ in range(20)]
                for call in calls:
                    await call.write(message)
                while one.supervisor.meter.unread < len(calls):
                    await asyncio.sleep(0.01)
            while one.supervisor.meter.in_flight:
                await asyncio.sleep(0.01)
            assert one.supervisor.meter.served == 0

    run(journey())
    assert [one.message for one in caplog.records if one.name != "aiohttp.server"] == []


@pytest.mark.long
def test_a_client_that_no_longer_answers_ends_the_work_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_server, "KEEP_ALIVE_MS", 1000)

    async def journey() -> None:
        async with plane(Script(gap=60)) as one:
            passes, over = asyncio.Event(), asyncio.Event()
            passes.set()

            async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(2**16):
                    await passes.wait()
                    sink.write(data)
                sink.close()

            async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                behind_reader, behind_writer = await asyncio.open_unix_connection(str(one.socket))
                try:
                    await asyncio.gather(
                        forward(reader, behind_writer), forward(behind_reader, writer)
                    )
                except ConnectionError:  # an end that is closed may also be a broken connection
                    behind_writer.close()
                    writer.close()
                over.set()

            async def asking() -> AsyncIterator[dict[str, Any]]:
                yield asked()
                await asyncio.Event().wait()

            network = one.socket.with_name("n")
            async with await asyncio.start_unix_server(join, network) as server:
                client = triton_aio.InferenceServerClient(f"unix:{network}")
                answers = client.stream_infer(asking(), headers=HEADERS)
                await anext(answers)
                passes.clear()  # from here on nothing arrives, and no connection is closed
                while not one.engine.left:
                    await asyncio.sleep(0.05)
                assert one.supervisor.meter.in_flight == 0
                passes.set()
                await client.close()
                await over.wait()
                server.close()

    run(journey())


def test_an_answer_that_breaks_off_never_looks_complete() -> None:
    async def journey() -> None:
        async with plane(Script(plan=["cut", "cut"])) as one:
            for name in ("response", "body"):
                found = await one.stream(asked() | for_output(name))
                assert "broke off" in str(found[-1][1])
                assert all(error is None for _, error in found[:-1])

    run(journey())


@pytest.mark.long
def test_the_proto_and_its_description_are_one(tmp_path: Path) -> None:
    made = tmp_path / "made"
    argv = [f"-I{PROTO.parent}", f"--descriptor_set_out={made}", PROTO.name]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *argv], check=True)
    same = made.read_bytes() == (PROTO.parent / protobuf_classes.DESCRIPTION).read_bytes()
    assert same, "run python -m grpc_tools.protoc " + " ".join(argv[::2])


def test_every_field_has_the_number_that_triton_gives_it() -> None:
    theirs = service_pb2.DESCRIPTOR.pool
    file = protobuf_classes.POOL.FindFileByName("inference.proto")
    compared = 0
    waiting = list(file.message_types_by_name.values())
    while waiting:
        ours = waiting.pop()
        waiting += ours.nested_types
        other = theirs.FindMessageTypeByName(ours.full_name)
        for field in ours.fields:
            twin = other.fields_by_name[field.name]
            assert (field.number, field.type, field.label) == (twin.number, twin.type, twin.label)
            compared += 1
    assert compared > 60


@pytest.mark.long
def test_draining_and_the_watchdog_are_those_of_http(start: Callable[..., Wrapper]) -> None:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = Path(folder) / "g"
        wrapper = start("--grpc-socket", str(path))
        request = {**asked(), "model_name": "scripted"}

        async def asking() -> AsyncIterator[dict[str, Any]]:
            yield request

        async def journey() -> None:
            async with (
                wrapper.control() as control,
                triton_aio.InferenceServerClient(f"unix:{path}") as client,
            ):
                await control.loaded(wrapper.body(gap=0.3))
                answers = client.stream_infer(asking(), headers=HEADERS)
                first = [await anext(answers)]
                unloading = asyncio.ensure_future(control.unload(drain_seconds=30))
                await control.until("draining")
                late = client.stream_infer(asking(), headers=HEADERS)
                [(_, error)] = [one async for one in late]
                assert "no model is ready (draining)" in str(error)
                assert text_of([*first, *[one async for one in answers]]) == TEXT
                assert (await unloading)[0] == 200
                await control.loaded({**wrapper.body(gap=30), "stall_timeout": 0.5})
                stalled = client.stream_infer(asking(), headers=HEADERS)
                _, error = [one async for one in stalled][-1]
                assert "broke off" in str(error)
                status = await control.until("failed")
                assert status["error"]["kind"] == "stalled"

        run(journey())


@pytest.mark.long
def test_a_process_serves_on_a_socket_of_its_owner_and_tells_of_a_killed_engine(
    start: Callable[..., Wrapper],
) -> None:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = Path(folder) / "g"
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(path))  # what a killed wrapper leaves
        wrapper = start("--grpc-socket", str(path))
        assert path.stat().st_mode & 0o777 == 0o600
        engine = {"engine": "tests.unit.wrapper.plane:ReadingEngine"}

        async def journey() -> None:
            async with wrapper.control() as control:
                pid = (await control.loaded({**wrapper.body(gap=10.0), **engine}))["pid"]
            async with triton_aio.InferenceServerClient(f"unix:{path}") as client:

                async def asking() -> AsyncIterator[dict[str, Any]]:
                    yield {**asked(b"a page"), "model_name": "scripted"}

                answers = client.stream_infer(asking(), headers=HEADERS)
                await anext(answers)
                [image] = (wrapper.folder / "e").glob("*/i/*")
                assert image.read_bytes() == b"a page"
                assert image.parent.stat().st_mode & 0o777 == 0o700
                os.kill(pid, signal.SIGKILL)
                _, error = [one async for one in answers][-1]
                assert "broke off" in str(error)
                request = {**asked(stream=False), "model_name": "scripted"}
                with pytest.raises(InferenceServerException, match="no model is ready.*SIGKILL"):
                    await client.infer(**request, headers=HEADERS)

        run(journey())
        wrapper.close()
        assert gone([wrapper.process.pid]) and not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grpc-port", "0", "--host", "0.0.0.0"], "--tls-certificate"),
        (["--grpc-port", "0", "--tls-certificate", "/no/file"], "--tls-key"),
        (["--grpc-port", "0", "--tls-certificate", "/no/file", "--tls-key", "/no/key"], "/no/file"),
        (["--grpc-socket", "/no/folder/s"], "there is no folder /no/folder"),
        (["--grpc-socket", "/" + "x" * 120], "longer than 107 bytes"),
        (["--grpc-port", "99999"], "99999"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("key\n")
    key.chmod(0o600)
    argv = ["--port", "0", "--engine-dir", str(tmp_path), "--log", str(tmp_path / "log")]
    with pytest.raises(SystemExit) as end:
        main([*argv, "--key-file", str(key), *arguments])
    assert end.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    for name in ("certificate", "key"):
        (tmp_path / name).write_text("no certificate")
    with pytest.raises(OSError, match="certificate and .*key are not a certificate and its key"):
        grpc_server.credentials(tmp_path / "certificate", tmp_path / "key")


def test_a_key_with_a_pass_phrase_is_refused(tmp_path: Path) -> None:
    files = tmp_path / "certificate", tmp_path / "key"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]
    argv += ["-passout", "pass:secret", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(argv, check=True, capture_output=True)
    with pytest.raises(OSError, match=f"{files[1]} is encrypted: .* without a pass phrase"):
        grpc_server.credentials(*files)


def test_a_socket_or_port_in_use_is_an_error(tmp_path: Path) -> None:
    async def journey() -> None:
        async with plane() as one:
            with pytest.raises(OSError, match="is in use"):
                async with before(tmp_path / "e", socket=one.socket):
                    pass
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
                async with before(tmp_path / "e", port=port):
                    pass

    run(journey())


@pytest.mark.long
def test_a_port_speaks_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = tmp_path / "certificate", tmp_path / "key"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]
    argv += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"]
    argv += ["-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(argv, check=True, capture_output=True)
    caplog.set_level("INFO", "hpcbench.wrapper")

    async def journey() -> None:
        async with plane(host="localhost", port=0, tls=files):
            [line] = [one.message for one in caplog.records if "gRPC with TLS" in one.message]
            port = line.rpartition(":")[2]
            async with triton_aio.InferenceServerClient(
                f"localhost:{port}", ssl=True, root_certificates=str(files[0])
            ) as client:
                assert await client.is_server_ready(headers=HEADERS)

    run(journey())


@pytest.mark.long
def test_a_forked_process_has_no_threads_of_grpc() -> None:
    code = """if True:
        import asyncio, os, time
        from hpcbench.wrapper.grpc_server import grpc
        async def forked():
            server = grpc.aio.server()
            await server.start()
            if (child := os.fork()) == 0:
                time.sleep(0.1)
                os._exit(len(os.listdir("/proc/self/task")))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            os._exit(0)
        asyncio.run(forked())
    """
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.long
def test_it_costs_nothing_unasked() -> None:
    code = (
        "import sys, hpcbench.wrapper.__main__, hpcbench.inference.client, hpcbench.worker.process\n"
        "print([one for one in sys.modules if one.partition('.')[0] in ('grpc', 'google')])"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
