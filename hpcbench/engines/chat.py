"""OpenAI's chat completions as data: what is asked, what is answered, what is refused.

Only what a benchmark of document work sends: text and base64 images in, one answer out.
https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ApiError(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code

    def to_json(self) -> dict[str, Any]:
        """In OpenAI's form."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "code": self.code}}


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ImageUrl(_Part):
    """Where an image is; here always a data URI."""

    url: str


class ContentPart(_Part):
    """A piece of a message: a text or an image."""

    type: Literal["text", "image_url"]
    text: str = ""
    image_url: ImageUrl | None = None


class ChatMessage(_Part):
    """One message of a prompt."""

    role: str
    content: str | list[ContentPart]


class StreamOptions(_Part):
    """What a stream carries beside text."""

    include_usage: bool = False


class ChatRequest(_Part):
    """The fields of a request that are understood; others are ignored, as other engines do."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    n: Literal[1] = 1
    tools: None = None
    response_format: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    @property
    def limit(self) -> int | None:
        """Most tokens of the answer."""
        return self.max_completion_tokens or self.max_tokens


def parse(body: bytes, model_name: str) -> ChatRequest:
    """Read a request.

    Raises:
        ApiError: it is malformed, names another model, or wants what this engine cannot do.
    """
    try:
        ask = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ApiError(400, f"{place}: {first['msg']}".strip(": "), "invalid_request") from None
    if ask.model != model_name:
        text = f"the model '{ask.model}' does not exist (there is: {model_name})"
        raise ApiError(404, text, "model_not_found")
    if ask.response_format and ask.response_format.get("type") != "text":
        text = "response_format is not supported by this engine"
        raise ApiError(400, text, "unsupported")
    return ask


def unpack(ask: ChatRequest) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Messages as chat templates take them, and the bytes of the images in their order.

    Raises:
        ApiError: an image is not a base64 data URI.
    """
    messages: list[dict[str, Any]] = []
    images: list[bytes] = []
    for message in ask.messages:
        if isinstance(message.content, str):
            messages.append({"role": message.role, "content": message.content})
            continue
        parts: list[dict[str, Any]] = []
        for part in message.content:
            if part.type == "text":
                parts.append({"type": "text", "text": part.text})
            else:
                images.append(_image_bytes(part.image_url.url if part.image_url else ""))
                parts.append({"type": "image"})
        messages.append({"role": message.role, "content": parts})
    return messages, images


def _image_bytes(url: str) -> bytes:
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        text = "image_url must be a data URI: data:image/…;base64,…"
        raise ApiError(400, text, "invalid_image")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ApiError(400, f"image is not base64: {error}", "invalid_image") from None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int

    def to_json(self) -> dict[str, int]:
        """In OpenAI's form."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """Builds the objects that make up one answer, streamed or whole."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish_reason: str, usage: Usage) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage.to_json()}

    def delta(self, delta: Mapping[str, str], finish_reason: str | None = None) -> bytes:
        """An event of the stream: the role, a text, or the end."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def usage(self, usage: Usage) -> bytes:
        """The event after the last: tokens, and no choices."""
        head = self._head("chat.completion.chunk")
        return event({**head, "choices": [], "usage": usage.to_json()})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"
