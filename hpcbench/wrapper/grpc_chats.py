"""A request of `inference.proto` before the same proxy as HTTP.

It becomes the ASGI request that it would be over HTTP, so limits, counts, the watchdog, masks and errors are
those of the data plane, and not a second set. Images go to the engine through files in its private folder,
which hold them until the answer ends; an engine that reads no files gets data URIs, made here.

Imported only when gRPC is asked for: it needs protobuf, of the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hpcbench.data_uri import PIECE_BYTES, uri_head
from hpcbench.open_inference import chat
from hpcbench.open_inference.chat import Chat, Malformed, Reply
from hpcbench.wrapper.bodies import TOO_DEEP
from hpcbench.wrapper.proxy import Proxy
from hpcbench.wrapper.request import Exchange, message_of
from hpcbench.wrapper.supervisor import Route, Supervisor

GRACE_SECONDS = 2.0
"""Time that open streams have to end after the engine has ended."""

_PIECES_AT_ONCE = 16  # encoded before other streams have their turn
_WRITTEN_AT_ONCE = 2**21  # bytes; a larger file is written in a thread, and not kept
_SPARE_FILES = 32


class Chats:
    """Passes requests on to the engine of a supervisor.

    Args:
        supervisor: holds the engine.
        message_limit: largest request, bytes.
    """

    def __init__(self, supervisor: Supervisor, message_limit: int) -> None:
        # base64 needs room
        self._supervisor, self._proxy = supervisor, Proxy(supervisor, 2 * message_limit)
        self._spares = _Spares()
        supervisor.takes_images = True

    @property
    def model(self) -> Any:
        """Name of the loaded model; None: there is none."""
        return self._supervisor.status()["model_name"]

    async def pass_on(
        self,
        exchange: Whole | Pieces,
        message: bytes | bytearray,
        headers: Iterable[tuple[bytes, bytes]],
    ) -> None:
        """Answer one request, encoded; `headers` are those of HTTP."""
        images, answered = _Images(self._supervisor.route, self._spares), False
        try:
            unread = chat.Unread(message)
            exchange.reply = Reply(unread.message.model_name, unread.message.id)
            asked = chat.read_request(unread)
            model = self.model
            if model is not None and asked.model not in ("", model):  # else the proxy says why
                return await exchange.refuse(404, "not_found", "there is no model of this name")
            exchange.as_bytes = asked.as_bytes
            body = await with_images(asked, images, streams=exchange.streams)
            await exchange.run(self._proxy, body, headers)
            answered = exchange.status == 200
        except Malformed as error:
            return await exchange.refuse(400, "bad_request", str(error))
        except RecursionError:
            return await exchange.refuse(400, "bad_request", TOO_DEEP)
        finally:
            images.end(read=answered)
        return None


class Whole(Exchange):
    """An answer in one message."""

    def __init__(self) -> None:
        super().__init__()
        self.reply, self.answer = Reply("", ""), b""

    async def take(self, texts: Sequence[str], *, last: bool) -> None:
        self.answer = "".join(texts).encode()

    async def take_bytes(self, block: bytes, *, last: bool) -> None:
        self.answer += block

    async def fail(self, body: bytes) -> None:
        self.answer = body


class Pieces(Exchange):
    """An answer in messages of a stream."""

    streams = True

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        super().__init__()
        self.reply, self._write = Reply("", ""), write

    async def begin(self) -> None:
        await self._write(self.reply.head(self.status, self.headers))

    async def take(self, texts: Sequence[str], *, last: bool) -> None:
        await self._write(self.reply.chunks([text.encode() for text in texts], last=last))

    async def take_bytes(self, block: bytes, *, last: bool) -> None:
        await self._write(self.reply.body(block, last=last))

    async def fail(self, body: bytes) -> None:
        text = body.decode(errors="replace")
        await self._write(self.reply.error(self.status, message_of(body), text, self.headers))


class _Spares:
    """Files of answered requests, to be written again: memory for a new one costs more than its bytes."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._files: list[Path] = []

    def take(self, folder: Path) -> tuple[Path, str]:
        """A file to write an image to, and the mode in which to open it; no client knows its name."""
        if folder != self._folder:  # another engine: the files are gone with the one before it
            self._folder, self._files = folder, []
        if self._files:
            return self._files.pop(), "r+b"
        return folder / uuid.uuid4().hex, "xb"

    def give_back(self, file: Path) -> None:
        """Keep a file under a name that the engine does not know, or remove it."""
        with contextlib.suppress(OSError):
            known = file.parent == self._folder and len(self._files) < _SPARE_FILES
            if known and file.stat().st_size <= _WRITTEN_AT_ONCE:
                self._files.append(file.rename(file.with_name(uuid.uuid4().hex)))
            else:
                file.unlink()


class _Images:
    """The images of one request, as its engine takes them.

    Args:
        route: the engine; None: there is none.
        spares: files to write.
    """

    def __init__(self, route: Route | None, spares: _Spares) -> None:
        self._folder = route.images if route is not None else None
        self._spares = spares
        self._files: list[Path] = []

    async def url(self, image: memoryview) -> list[bytes]:
        """Its address, in pieces: a `file://` URI, or a data URI where there is no folder or no space."""
        if self._folder is not None:
            file, mode = self._spares.take(self._folder)
            self._files.append(file)
            with contextlib.suppress(OSError):
                if len(image) > _WRITTEN_AT_ONCE:
                    await asyncio.to_thread(_write, file, mode, image)
                else:
                    _write(file, mode, image)
                return [file.as_uri().encode()]
        return [uri_head(image), *[text async for text in _encoded(image)]]

    def end(self, *, read: bool) -> None:
        """Remove the files, or, if the engine has surely read them, keep them to be written again."""
        for file in self._files:
            if read:
                self._spares.give_back(file)
            else:
                with contextlib.suppress(OSError):
                    file.unlink()


def _write(file: Path, mode: str, image: memoryview) -> None:
    with file.open(mode) as opened:
        opened.write(image)
        opened.truncate()


async def with_images(asked: Chat, images: _Images, *, streams: bool) -> bytes:
    """The body that the same request would have over HTTP, with addresses in the places of the images.

    Args:
        asked: the request.
        images: gives the addresses.
        streams: whether its answer may come in pieces.

    Raises:
        Malformed: it is not JSON, or places and images do not fit each other.
        RecursionError: it is nested too deeply.
    """
    if not asked.images and streams and chat.PLACE.encode() not in asked.body:
        return asked.body
    try:
        data = json.loads(asked.body)
    except ValueError as error:
        raise Malformed(f"the request is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Malformed("the request is not a JSON object")
    params = data.get("model_params")
    asks = {**params, **data} if isinstance(params, dict) else data  # as the proxy merges them
    if asks.get("stream") and not streams:
        raise Malformed("ModelInfer has no stream: use ModelStreamInfer")
    mark = uuid.uuid4().hex
    used = []
    for holder, key, number in chat.places(data.get("messages")):
        if number >= len(asked.images):
            raise Malformed(f"{chat.PLACE}{number} names no image: there are {len(asked.images)}")
        holder[key] = mark
        used.append(number)
    if unused := set(range(len(asked.images))) - set(used):
        raise Malformed(f"image {min(unused)} has no place {chat.PLACE}{min(unused)} in a message")
    pieces = iter(json.dumps(data).encode().split(mark.encode()))
    whole = [next(pieces)]
    for number, piece in zip(used, pieces, strict=True):
        whole += [*await images.url(asked.images[number]), piece]
    return b"".join(whole)


async def _encoded(image: memoryview) -> AsyncIterator[bytes]:
    """Base64, in pieces between which other streams have their turn."""
    for number, begin in enumerate(range(0, len(image), PIECE_BYTES), 1):
        yield base64.b64encode(image[begin : begin + PIECE_BYTES])
        if number % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)
