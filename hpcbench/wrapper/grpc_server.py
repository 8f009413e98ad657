"""The data plane over gRPC, for any client of `inference.proto`.

The worker's own client has a server of its own, `grpc_wire`, which costs less and takes no others.

Imported only when gRPC is asked for: it needs the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.open_inference import chat
from hpcbench.open_inference.protobuf_classes import (
    POOL,
    SERVICE,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from hpcbench.open_inference.without_forks import grpc
from hpcbench.wrapper.grpc_chats import GRACE_SECONDS, Chats, Pieces, Whole
from hpcbench.wrapper.proxy import WRONG_KEY, Admits
from hpcbench.wrapper.request import message_of
from hpcbench.wrapper.supervisor import Supervisor

KEEP_ALIVE_MS = 30_000
"""Silence on a connection after which the wrapper asks whether the client still lives, ms."""

FRAME_BYTES = 2**20
"""Largest frame of HTTP/2 that the wrapper takes: an image in frames of 16 KiB costs more."""

WINDOW_BYTES = 2**22
"""Bytes that a client may send before the wrapper has read them."""

READ_BYTES = 2**20
"""Most that is read of a connection at once: an image in pieces of 8 KiB costs more."""

_PENDING_CALLS = 2**31 - 1
"""Calls that may wait for their turn: of more than a thousand gRPC's library cancels some, at random."""

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""HTTP's number → gRPC's code; others from 400 on: INVALID_ARGUMENT, from 500 on: INTERNAL."""

_NAME = re.compile(r"[0-9a-z_.-]+")
"""A name of metadata."""

_TEXT_BYTES, _TRAILING_BYTES = 1000, 4000
"""Longest sentence of an error, and all else that goes with it: clients refuse metadata above 8 KiB, in which
each byte of the sentence may take three."""

log = logging.getLogger("hpcbench.wrapper")


@dataclass(frozen=True, slots=True)
class Address:
    """Where gRPC is served."""

    socket: Path | None = None
    """Unix socket; None: none."""
    host: str = "127.0.0.1"
    """Address for the port."""
    port: int | None = None
    """TCP port, 0: any free one; None: none."""
    tls: tuple[Path, Path] | None = None
    """Files of the certificate chain and of its key, PEM, for the port; None: it is not encrypted."""


@contextlib.asynccontextmanager
async def serving(
    admits: Admits, supervisor: Supervisor, address: Address, message_limit: int
) -> AsyncIterator[None]:
    """Serve gRPC inside the block; afterwards open streams have `GRACE_SECONDS` to end.

    Args:
        admits: whether a request with these headers has the key.
        supervisor: holds the engine.
        address: where to serve.
        message_limit: largest request, bytes.

    Raises:
        OSError: it cannot listen, or a file of TLS cannot be read or used.
    """
    from grpc_reflection.v1alpha import reflection, reflection_pb2  # import grpc themselves

    POOL.AddSerializedFile(reflection_pb2.DESCRIPTOR.serialized_pb)  # it describes itself, too
    server = grpc.aio.server(
        interceptors=[KeyCheck(admits)],
        options=[
            ("grpc.max_receive_message_length", message_limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", KEEP_ALIVE_MS),
            ("grpc.http2.ping_timeout_ms", KEEP_ALIVE_MS),  # keepalive_timeout_ms is not obeyed
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.http2.max_frame_size", FRAME_BYTES),
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.experimental.tcp_read_chunk_size", READ_BYTES),
            ("grpc.experimental.tcp_min_read_chunk_size", READ_BYTES // 4),
            ("grpc.server.max_pending_requests", _PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ],
    )
    service = Service(supervisor, Chats(supervisor, message_limit))
    server.add_generic_rpc_handlers((service.handlers(),))
    reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], server, pool=POOL)
    _listen(server, address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(GRACE_SECONDS)
        if address.socket is not None:
            address.socket.unlink(missing_ok=True)


def _listen(server: grpc.aio.Server, address: Address) -> None:
    """Open socket and port; only the owner may open the socket."""
    if address.socket is not None:
        if address.socket.exists():
            raise OSError(f"{address.socket} is in use")
        before = os.umask(0o177)
        try:
            server.add_insecure_port(f"unix:{address.socket}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address.socket}: {error}") from None
        finally:
            os.umask(before)
    if address.port is None:
        return
    shown = f"[{address.host}]" if ":" in address.host else address.host
    try:
        if address.tls is None:
            port = server.add_insecure_port(f"{shown}:{address.port}")
        else:
            port = server.add_secure_port(f"{shown}:{address.port}", credentials(*address.tls))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {shown}:{address.port}: {error}") from None
    log.info("serving gRPC%s on %s:%d", " with TLS" if address.tls else "", shown, port)


def credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Certificate and key of a server, for TLS.

    Raises:
        OSError: a file cannot be read, or they are no certificate and its key.
    """

    def refuse() -> (
        str
    ):  # else OpenSSL asks at the terminal, or on standard input, which has our key
        raise OSError(f"{key} is encrypted: gRPC needs a key without a pass phrase")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, refuse)
    except ssl.SSLError as error:
        text = f"{certificate} and {key} are not a certificate and its key, PEM: {error.reason}"
        raise OSError(text) from None
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


class KeyCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses every call without the key, reflection too, before a byte of its request is read."""

    def __init__(self, admits: Admits) -> None:
        self._admits = admits
        self._refusal = grpc.stream_stream_rpc_method_handler(_refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        if self._admits(_headers(details.invocation_metadata)):
            return await continuation(details)
        return self._refusal


async def _refuse(requests: object, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, WRONG_KEY)


class Service:
    """The methods of the service.

    Args:
        supervisor: holds the engine.
        chats: passes requests on to it.
    """

    def __init__(self, supervisor: Supervisor, chats: Chats) -> None:
        self._supervisor, self._chats = supervisor, chats

    def handlers(self) -> grpc.GenericRpcHandler:
        """All methods, for a server."""

        def one(ask: type, method: Callable[..., Any]) -> grpc.RpcMethodHandler:
            write = type(self)._encode
            return grpc.unary_unary_rpc_method_handler(method, ask.FromString, write)  # type: ignore[attr-defined]

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "ServerLive": one(ServerLiveRequest, self._live),
                "ServerReady": one(ServerReadyRequest, self._ready),
                "ModelReady": one(ModelReadyRequest, self._model_ready),
                "ServerMetadata": one(ServerMetadataRequest, self._metadata),
                "ModelMetadata": one(ModelMetadataRequest, self._model_metadata),
                # these take and give encoded messages: images are not copied
                "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
                "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
            },
        )

    @staticmethod
    def _encode(message: Any) -> bytes:
        encoded: bytes = message.SerializeToString()
        return encoded

    async def _live(self, ask: Any, context: grpc.aio.ServicerContext) -> Any:
        return ServerLiveResponse(live=True)

    async def _ready(self, ask: Any, context: grpc.aio.ServicerContext) -> Any:
        return ServerReadyResponse(ready=self._supervisor.route is not None)

    async def _model_ready(self, ask: Any, context: grpc.aio.ServicerContext) -> Any:
        ready = self._supervisor.route is not None
        return ModelReadyResponse(ready=ready and ask.name == self._chats.model)

    async def _metadata(self, ask: Any, context: grpc.aio.ServicerContext) -> Any:
        return ServerMetadataResponse(
            name="hpcbench", version=hpcbench.__version__, extensions=["model_stream_infer"]
        )

    async def _model_metadata(self, ask: Any, context: grpc.aio.ServicerContext) -> Any:
        status = self._supervisor.status()
        if ask.name != status["model_name"]:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no model of this name")
        found = ModelMetadataResponse(name=ask.name, platform=status["engine"])
        found.inputs.add(name=chat.REQUEST, datatype="BYTES", shape=[1])
        found.inputs.add(name=chat.IMAGES, datatype="BYTES", shape=[-1])
        found.outputs.add(name=chat.RESPONSE, datatype="BYTES", shape=[-1])
        found.outputs.add(name=chat.BODY, datatype="BYTES", shape=[1])
        return found

    async def _infer(self, message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """One request, answered as a whole."""
        exchange = Whole()
        await self._chats.pass_on(exchange, message, _headers(context.invocation_metadata()))
        if exchange.status == 200:
            return exchange.reply.whole(exchange.answer, as_bytes=exchange.as_bytes)
        context.set_trailing_metadata(_trailing(exchange))
        text = message_of(exchange.answer).encode()[:_TEXT_BYTES]
        await context.abort(code_of(exchange.status), text.decode(errors="ignore"))
        raise AssertionError("abort never returns")

    async def _stream(self, messages: Any, context: grpc.aio.ServicerContext) -> None:
        """Requests, answered side by side; a client that leaves ends the engine's work on all of them."""
        answering: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []
        writing = asyncio.Lock()

        def answered(task: asyncio.Task[None]) -> None:
            answering.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                failures.append(error)

        async def write(data: bytes) -> None:
            async with writing:  # gRPC takes one message at a time
                try:
                    await context.write(data)
                except Exception as error:
                    # the library's own error comes before it says that the client has left
                    lost = isinstance(error, grpc.aio.InternalError)
                    if lost or context.cancelled() or context.done():
                        raise asyncio.CancelledError from None
                    raise

        try:
            async for message in messages:
                headers = _headers(context.invocation_metadata())
                passing = self._chats.pass_on(Pieces(write), message, headers)
                task = asyncio.ensure_future(passing)
                answering.add(task)
                task.add_done_callback(answered)
            while answering:
                await asyncio.wait(answering)
            if failures:
                raise failures[0]
        finally:
            left = list(answering)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def code_of(status: int) -> grpc.StatusCode:
    """gRPC's code for a number of HTTP."""
    otherwise = grpc.StatusCode.INTERNAL if status >= 500 else grpc.StatusCode.INVALID_ARGUMENT
    return _CODES.get(status, otherwise)


def _headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> list[tuple[bytes, bytes]]:
    """A call's metadata as headers of HTTP, without those of gRPC itself and what would pack the answer."""
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in metadata or ()
        if not name.startswith(("grpc-", ":"))
        and name not in ("user-agent", "content-type", "accept-encoding")
        and not name.endswith("-bin")
    ]


def _trailing(exchange: Whole) -> list[tuple[str, str]]:
    """Metadata of an error besides its code: as much as gRPC can carry and every client takes."""
    fields = [("http-status", str(exchange.status)), ("error", _in_ascii(exchange.answer))]
    left, found = _TRAILING_BYTES, []
    for name, value in (*fields, *exchange.headers.items()):
        ours = _NAME.fullmatch(name) and not name.startswith("grpc-") and not name.endswith("-bin")
        size = len(name) + len(value)
        if ours and value.isascii() and value.isprintable() and size <= left:
            left -= size
            found.append((name, value))
    return found


def _in_ascii(body: bytes) -> str:
    """JSON that metadata can carry."""
    try:
        return json.dumps(json.loads(body))
    except (ValueError, RecursionError):
        return json.dumps(body[:200].decode(errors="replace"))
