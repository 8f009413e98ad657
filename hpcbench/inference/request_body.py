"""Requests as bytes: images are read, hashed and encoded before any clock runs, off the event loop."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.data_uri import PIECE_BYTES, uri_head
from hpcbench.files.user import refuse_pipes
from hpcbench.schema.records import Image, Message, Request


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to be sent."""

    request: Request
    """The original request."""
    taken: int
    """`time.monotonic_ns()` at the start of its preparation."""
    body: bytes | tuple[bytes, ...] = b""
    """The body to post, or, in parts, the message to send over gRPC."""
    image_sha256: tuple[str, ...] = ()
    """Hash of each image's bytes."""
    answer_key: str | None = None
    """See `answer_key`."""
    error: str | None = None
    """Reason why it cannot be sent: an unreadable image."""


def prepare(
    model: str, request: Request, files_under: Path | None = None
) -> tuple[bytes, tuple[str, ...]]:
    """The body to post, and the SHA-256 of each image.

    Images are sent as data URIs of their exact bytes; image files below `files_under` (resolved) as
    `file://` URIs. The body requests token counts with each chunk; an endpoint that would refuse that is
    behind the remote engine's relay, which removes the setting.

    Raises:
        OSError: an image cannot be read, or is empty.
    """
    # the JSON encoder never sees the images: it would check each of their characters
    mark = uuid.uuid4().hex
    uris: list[list[bytes]] = []
    hashes = []
    for image in images_of(request):
        data = read_image(image)
        digest, encoded = hash_and_encode(data)
        hashes.append(digest)
        file = _below(image, files_under)
        uri = [file] if file else [uri_head(data), *encoded]
        uris.append(uri)
    body = _body(model, request, itertools.repeat(mark))
    pieces = iter(json.dumps(body).encode().split(mark.encode()))
    out = [next(pieces)]
    for uri, piece in zip(uris, pieces, strict=True):
        out += [*uri, piece]
    return b"".join(out), tuple(hashes)


def prepare_message(
    model: str, request: Request, files_under: Path | None = None
) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """The message to send over gRPC, in parts, and the SHA-256 of each image.

    The same request as `prepare` gives, with the images as they are beside it: no base64, and no copy.

    Raises:
        OSError: an image cannot be read, or is empty.
    """
    from hpcbench.open_inference.chat import PLACE
    from hpcbench.open_inference.chat import request as encoded

    images: list[bytes] = []
    urls, hashes = [], []
    for image in images_of(request):
        data = read_image(image)
        hashes.append(hashlib.sha256(data).hexdigest())
        if file := _below(image, files_under):
            urls.append(file.decode())
        else:
            urls.append(f"{PLACE}{len(images)}")
            images.append(data)
    body = json.dumps(_body(model, request, iter(urls))).encode()
    return encoded(model, body, images), tuple(hashes)


def answer_key(model: str, request: Request, image_sha256: Sequence[str]) -> str | None:
    """SHA-256 of all that makes a request's answer: its basis, and every byte sent; None without a basis.

    An image counts by the hash of its bytes, whether they are sent or its path is. Workers compute the key of
    what they send, and submission computes the key of what they would send.

    Args:
        model: model name of the request.
        request: the request.
        image_sha256: hash of each of its images.
    """
    if not request.basis:
        return None
    body = _body(model, request, iter(image_sha256))
    text = json.dumps([request.basis, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def images_of(request: Request) -> list[Image]:
    """The request's images, in the order in which they are sent."""
    return [image for message in request.messages for image in message.images]


def _body(model: str, request: Request, urls: Iterator[str]) -> dict[str, Any]:
    """The request in OpenAI's form; each image takes the next URL.

    A change after which an engine may answer otherwise needs another `planning.ANSWER_KEY_VERSION`.
    """
    messages = [_sent(message, urls) for message in request.messages]
    return {
        **{name: value for name, value in request.generation.items() if value is not None},
        **({"tools": list(request.tools)} if request.tools else {}),
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _sent(message: Message, urls: Iterator[str]) -> dict[str, Any]:
    """A message in OpenAI's form."""
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": next(urls)}} for _ in message.images
    ]
    text = {"type": "text", "text": message.text}
    sent: dict[str, Any] = {
        "role": message.role,
        "content": [*parts, text] if parts else message.text,
    }
    if message.calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.call_id is not None:
        sent["tool_call_id"] = message.call_id
    return sent


def hash_and_encode(data: bytes) -> tuple[str, list[bytes]]:
    """SHA-256 in hex, and the base64 text in pieces.

    Piece by piece: hashing releases Python's lock, so the event loop can run between two pieces.
    """
    digest = hashlib.sha256()
    encoded = []
    for piece in _pieces(data):
        digest.update(piece)
        encoded.append(base64.b64encode(piece))
    return digest.hexdigest(), encoded


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for begin in range(0, len(data), PIECE_BYTES):
        yield view[begin : begin + PIECE_BYTES]


def read_image(image: Image) -> bytes:
    """The image's bytes.

    Raises:
        OSError: it cannot be read, or is empty.
    """
    name = None
    if isinstance(image, bytes):
        data = image
    elif isinstance(image, Path):
        refuse_pipes(image)
        name, data = str(image), image.read_bytes()
    else:
        name = image.name
        try:
            data = image.read()
        except OSError:
            raise
        except Exception as error:  # a dataset's code over a file: one image must not end a worker
            raise OSError(0, str(error) or type(error).__name__, name) from error
    if not data:
        raise OSError(0, "the image is empty", name)
    return data


def unreadable(error: OSError) -> str:
    """The message about an image that `read_image` could not read."""
    path = f" {error.filename}" if error.filename else ""
    return f"image{path} cannot be read: {error.strerror or error}"


def _below(image: Image, folder: Path | None) -> bytes | None:
    """The `file://` URI of an image file below the folder, links followed."""
    if folder is None or not isinstance(image, Path):
        return None
    file = image.resolve()
    return file.as_uri().encode() if file.is_relative_to(folder) else None
