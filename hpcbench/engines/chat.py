"""OpenAI's chat completions as data: requests, answers, errors.

Only the subset that a benchmark of document work sends: text and images in, one answer out, and the supported
subset of vLLM's sampling settings. An unknown field that would change the answer is refused: an engine that
ignores a setting measures something other than the request.
https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator


class ApiError(Exception):
    """A request that gets an error as its answer."""

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
    """Location of an image: a data URI, or `file://` below the media root."""

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


class StreamOptions(BaseModel):
    """Extra content of a stream, beside text."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    continuous_usage_stats: bool = False
    """Each chunk has the token count so far, and each token has a chunk, even if it adds no text yet."""


class JsonSchema(_Part):
    """A schema with its name; `strict` always applies."""

    schema_: dict[str, JsonValue] = Field(alias="schema")


class ResponseFormat(_Part):
    """Required format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("json_schema is missing")
        return self


class ChatRequest(BaseModel):
    """The supported fields of a request; null counts as absent.

    The first fields are OpenAI's, the later ones vLLM's, under vLLM's names. The default of a setting is the
    model's own (generation_config.json), else neutral.
    """

    model_config = ConfigDict(extra="allow")  # to name unknown fields in errors

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    user: str | None = None
    """Has no effect, as in OpenAI's API."""

    top_k: int | None = Field(default=None, ge=-1)
    """0 and -1 mean all tokens."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0)
    min_tokens: int | None = Field(default=None, ge=0)
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)

    @property
    def limit(self) -> int | None:
        """Most tokens of the answer."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def schema_wanted(self) -> Mapping[str, JsonValue] | None:
        """JSON schema of the answer; None: any text."""
        form = self.response_format
        if form is None or form.type == "text":
            return None
        return form.json_schema.schema_ if form.json_schema else {"type": "object"}


def parse(body: bytes, model_name: str) -> ChatRequest:
    """Read a request.

    Raises:
        ApiError: it is malformed, names another model, or requires an unsupported feature.
    """
    try:
        ask = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{place}: {first['msg'].removeprefix('Value error, ')}".strip(": ")
        raise ApiError(400, message, "invalid_request") from None
    for name, value in (ask.model_extra or {}).items():
        if value is not None:
            raise ApiError(400, f"this engine does not know the field '{name}'", "unsupported")
    if ask.schema_wanted is not None and (ask.min_tokens or ask.ignore_eos):
        message = "response_format cannot be combined with min_tokens or ignore_eos"
        raise ApiError(400, message, "unsupported")
    if ask.model != model_name:
        text = f"the model '{ask.model}' does not exist (there is: {model_name})"
        raise ApiError(404, text, "model_not_found")
    return ask


def unpack(
    ask: ChatRequest, media_root: Path | None = None
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Messages in the form of chat templates, and the bytes of the images in their order.

    Raises:
        ApiError: an image is neither a base64 data URI nor a file below `media_root`.
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
                url = part.image_url.url if part.image_url else ""
                images.append(_image_bytes(url, media_root))
                parts.append({"type": "image"})
        messages.append({"role": message.role, "content": parts})
    return messages, images


def _image_bytes(url: str, media_root: Path | None) -> bytes:
    if url[:5].lower() == "data:":
        return _decoded(url)
    if url[:7].lower() == "file://":
        return _file(url, media_root)
    text = "image_url must be a data URI, data:image/…;base64,…, or file:// below the media root"
    raise ApiError(400, text, "media_not_allowed")


def _decoded(url: str) -> bytes:
    head, comma, data = url.partition(",")
    if not (comma and head.endswith(";base64")):
        text = "image_url must be a base64 data URI: data:image/…;base64,…"
        raise ApiError(400, text, "invalid_image")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"image is not base64: {error}", "invalid_image") from None


def _file(url: str, media_root: Path | None) -> bytes:
    """Resolves links first, so that no link leads out; a file outside is not even looked up."""
    if media_root is None:
        text = "file:// needs a media root, and the model was loaded without one: send data URIs"
        raise ApiError(400, text, "media_not_allowed")
    parts = urllib.parse.urlsplit(url)
    try:
        path = Path(urllib.parse.unquote(parts.path)).resolve()
    except (OSError, RuntimeError, ValueError):  # a circle of links, a null byte
        path = Path("/")
    if parts.netloc not in ("", "localhost") or not path.is_relative_to(media_root.resolve()):
        text = f"a file:// path is not below the media root {media_root}"
        raise ApiError(400, text, "media_not_allowed")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ApiError(
            400, f"image file cannot be read: {error.strerror}", "invalid_image"
        ) from None


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
class CompletionBuilder:
    """Builds the objects of one answer, streamed or whole."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish_reason: str, usage: Usage) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage.to_json()}

    def delta(
        self,
        delta: Mapping[str, str],
        finish_reason: str | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        """An event of the stream: the role, a text, or the end; with the tokens so far, if requested."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        data = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if usage is not None:
            data["usage"] = usage.to_json()
        return event(data)

    def usage(self, usage: Usage) -> bytes:
        """The event after the last text: tokens, and no choices."""
        head = self._head("chat.completion.chunk")
        return event({**head, "choices": [], "usage": usage.to_json()})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"
