"""Images that are new to caches, without a changed pixel: for a warm-up that only has the run's own items.

Engines identify an image by a hash of its bytes and then skip the work on it. Bytes after the end of an
image change the hash, and every decoder of these formats ignores them. An engine that hashes pixels
instead still recognises the image; warm it up with other items.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from hpcbench.inference.request_body import read_image
from hpcbench.schema.records import Image, Request

_ENDS = (
    (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
    (b"\xff\xd8\xff", b"\xff\xd9"),
    (b"GIF8", b"\x3b"),
    # the header of these formats has the position of every part
    (b"II*\0", b""),
    (b"MM\0*", b""),
    (b"BM", b""),
)


def new_image(data: bytes, nonce: bytes) -> bytes | None:
    """The image with `nonce` after its end; None if that may change the pixels."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        whole = int.from_bytes(data[4:8], "little") + 8 == len(data)
        return data + nonce if whole else None
    for magic, end in _ENDS:
        if data.startswith(magic):
            return data + nonce if data.endswith(end) else None
    return None


def as_new(request: Request) -> Request:
    """The same request with images that are new to caches.

    Images of other formats and unreadable images stay unchanged: sending reports the latter.
    """
    messages = []
    for message in request.messages:
        images: list[Image] = []
        for image in message.images:
            try:
                data = read_image(image)
                images.append(new_image(data, uuid.uuid4().bytes) or data)
            except OSError:
                images.append(image)
        messages.append(replace(message, images=tuple(images)))
    return replace(request, messages=tuple(messages))
