"""A chat in the messages of the protocol: `inference.proto` says which tensors and parameters.

Large parts are joined once, in protobuf's own encoding (https://protobuf.dev/programming-guides/encoding): a
message is the concatenation of its fields, so images and chunks are put behind a head that protobuf wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from hpcbench.open_inference.protobuf_classes import (
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)

REQUEST, IMAGES, RESPONSE, BODY = "request", "images", "response", "body"
"""Names of the tensors."""
HTTP_STATUS, ERROR, FINAL = "http-status", "error", "triton_final_response"
"""Names of parameters."""
PLACE = "tensor:"
"""Text of an image's place in a request, with the image's number behind it."""

_RAW_INPUT, _RAW_OUTPUT, _INFER_RESPONSE = 7, 6, 2  # numbers of the fields
_LENGTH_DELIMITED = 2
_PREFIX = 4  # bytes of an element's length
_APART_BYTES = 2**14  # of a part that is not copied


class Malformed(ValueError):
    """A request whose tensors are not those of `inference.proto`."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request and its images."""

    model: str
    """Name of the model; empty: whichever there is."""
    id: str
    """The client's name for the request."""
    body: bytes
    """OpenAI's JSON; places of images are `tensor:0` and so on."""
    images: tuple[memoryview, ...]
    """The images, byte for byte: views of the message."""
    as_bytes: bool
    """Whether the answer is asked for as the bytes of HTTP."""


def request(model: str, body: bytes, images: Sequence[bytes]) -> tuple[bytes, ...]:
    """A request for the answer's bytes, encoded, in parts: an image is not copied.

    Args:
        model: name of the model.
        body: OpenAI's JSON, with `tensor:0` where the first image belongs.
        images: the images.
    """
    head = ModelInferRequest(model_name=model)
    head.inputs.add(name=REQUEST, datatype="BYTES", shape=[1])
    head.outputs.add(name=BODY)
    parts = [*_raw(_RAW_INPUT, [body])]
    if images:
        head.inputs.add(name=IMAGES, datatype="BYTES", shape=[len(images)])
        parts += _raw(_RAW_INPUT, images)
    joined = [head.SerializeToString()]
    for part in parts:
        if len(part) < _APART_BYTES:
            joined[-1] += part
        else:
            joined += [part, b""]
    return tuple(joined)


class Unread:
    """A ModelInferRequest of which protobuf read all but the raw contents: these are views.

    Raises:
        Malformed: it is no such message.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        view, at = memoryview(data), 0
        self.raw: list[memoryview] = []
        """The raw contents of the inputs."""
        head = []
        while at < len(data):
            begin = at
            tag, at = _varint(data, at)
            size, at = _varint(data, at)
            if tag & 7 != _LENGTH_DELIMITED or at + size > len(data):
                raise Malformed("the message is no ModelInferRequest")
            if tag >> 3 == _RAW_INPUT:
                self.raw.append(view[at : at + size])
            else:
                head.append(view[begin : at + size])
            at += size
        try:
            self.message = ModelInferRequest.FromString(b"".join(head))
        except DecodeError:
            raise Malformed("the message is no ModelInferRequest") from None


def read_request(unread: Unread) -> Chat:
    """The chat in a ModelInferRequest.

    Raises:
        Malformed: a tensor is missing, unknown, or of another type or shape.
    """
    message, raw = unread.message, unread.raw
    if raw and len(raw) != len(message.inputs):
        raise Malformed(f"{len(message.inputs)} inputs need as many raw_input_contents")
    found: dict[str, tuple[memoryview, ...]] = {}
    for number, tensor in enumerate(message.inputs):
        name = tensor.name
        if name not in (REQUEST, IMAGES):
            raise Malformed(f"unknown input {name[:80]!r}: the inputs are {REQUEST}, {IMAGES}")
        if name in found:
            raise Malformed(f"the input {name} comes twice")
        if tensor.datatype != "BYTES":
            raise Malformed(f"the input {name} must be BYTES, not {tensor.datatype[:80]!r}")
        shape = list(tensor.shape)
        if len(shape) != 1 or shape[0] < 0 or (name == REQUEST and shape != [1]):
            wanted = "[1]" if name == REQUEST else "[n]"
            raise Malformed(f"the input {name} must have the shape {wanted}, not {shape[:8]}")
        inline = tensor.contents.bytes_contents
        elements = (
            elements_of(raw[number], shape[0]) if raw else tuple(memoryview(one) for one in inline)
        )
        if len(elements) != shape[0]:
            raise Malformed(f"the input {name} has {len(elements)} elements, not {shape[0]}")
        found[name] = elements
    if REQUEST not in found:
        raise Malformed(f"there is no input {REQUEST}")
    [body] = found[REQUEST]
    outputs = {one.name for one in message.outputs} or {RESPONSE}
    if unknown := outputs - {RESPONSE, BODY}:
        raise Malformed(f"unknown output {min(unknown)[:80]!r}: the outputs are {RESPONSE}, {BODY}")
    if len(outputs) > 1:
        raise Malformed(f"a request has one output: {RESPONSE} or {BODY}")
    return Chat(
        message.model_name, message.id, bytes(body), found.get(IMAGES, ()), outputs == {BODY}
    )


def places(data: Any) -> Iterator[tuple[dict[str, Any], str, int]]:
    """Every place of an image in a request's messages: the object, its key, and the image's number.

    Raises:
        Malformed: a place names no number.
    """
    if isinstance(data, list):
        for value in data:
            yield from places(value)
        return
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if not key.endswith("_url"):
            yield from places(value)
            continue
        holder, name = (value, "url") if isinstance(value, dict) else (data, key)
        url = holder.get(name)
        if isinstance(url, str) and url.startswith(PLACE):
            digits = url[len(PLACE) :]
            if not (digits.isascii() and digits.isdigit() and len(digits) < 7):
                raise Malformed(f"the place of an image is {PLACE}0, {PLACE}1 and so on")
            yield holder, name, int(digits)


class Reply:
    """Writes the encoded responses to one request.

    Args:
        model: name of the model.
        request_id: id of the request.
    """

    def __init__(self, model: str, request_id: str) -> None:
        self._name = ModelInferResponse(model_name=model, id=request_id)
        self._heads: dict[tuple[str, int, bool], bytes] = {}
        self._before: dict[int, bytes] = {}
        """All that is before bytes of the answer, by their number."""

    def head(self, status: int, headers: Mapping[str, str]) -> bytes:
        """The first response: HTTP's status and headers."""
        return _streamed(self._headed(status, headers))

    def chunks(self, texts: Sequence[bytes], *, last: bool) -> bytes:
        """A response with these chunks of JSON; the last one says so, and may have none."""
        return self._piece(RESPONSE, texts, last)

    def body(self, block: bytes, *, last: bool) -> bytes:
        """A response with these bytes of the answer, or with none."""
        if last or not block:
            return self._piece(BODY, (block,) if block else (), last)
        before = self._before.get(len(block))
        if before is None:  # an engine's texts have few lengths
            whole = self._piece(BODY, (block,), last)
            before = self._before[len(block)] = whole[: -len(block)]
        return before + block

    def _piece(self, name: str, elements: Sequence[bytes], last: bool) -> bytes:
        head = self._heads.get((name, len(elements), last))
        if head is None:
            whole = self._copied()
            if elements:
                whole.outputs.add(name=name, datatype="BYTES", shape=[len(elements)])
            if last:
                whole.parameters[FINAL].bool_param = True
            head = self._heads[name, len(elements), last] = whole.SerializeToString()
        raw = _raw(_RAW_OUTPUT, elements) if elements else []
        return b"".join(_field(_INFER_RESPONSE, [head, *raw]))

    def error(self, status: int, message: str, body: str, headers: Mapping[str, str]) -> bytes:
        """The last response of a request that failed; `body` is OpenAI's JSON."""
        whole = self._headed(status, headers)
        whole.parameters[FINAL].bool_param = True
        whole.parameters[ERROR].string_param = body
        encoded: bytes = ModelStreamInferResponse(
            error_message=message or "error", infer_response=whole
        ).SerializeToString()
        return encoded

    def whole(self, text: bytes, *, as_bytes: bool) -> bytes:
        """The answer of ModelInfer."""
        whole = self._copied()
        whole.outputs.add(name=BODY if as_bytes else RESPONSE, datatype="BYTES", shape=[1])
        return b"".join([whole.SerializeToString(), *_raw(_RAW_OUTPUT, [text])])

    def _headed(self, status: int, headers: Mapping[str, str]) -> Any:
        whole = self._copied()
        whole.parameters[HTTP_STATUS].int64_param = status
        for name, value in headers.items():
            whole.parameters[name].string_param = value
        return whole

    def _copied(self) -> Any:
        copy = ModelInferResponse()
        copy.CopyFrom(self._name)
        return copy


def elements_of(raw: bytes | memoryview, most: int | None = None) -> tuple[memoryview, ...]:
    """The elements of a BYTES tensor, as views of it.

    Args:
        raw: the tensor.
        most: largest number of them; None: any. Bytes that are no tensor may seem to have millions.

    Raises:
        Malformed: a length points beyond the end, or there are more.
    """
    found: list[memoryview] = []
    view, at = memoryview(raw), 0
    while at < len(view):
        if len(found) == most:
            raise Malformed(f"a BYTES tensor has more elements than its shape has: {most}")
        begin = at + _PREFIX
        at = begin + int.from_bytes(view[at:begin], "little")
        if begin > len(view) or at > len(view):
            raise Malformed("an element of a BYTES tensor is cut short")
        found.append(view[begin:at])
    return tuple(found)


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A number in protobuf's form, and where the next byte is."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Malformed("the message is no ModelInferRequest")


def _streamed(whole: Any) -> bytes:
    return b"".join(_field(_INFER_RESPONSE, [whole.SerializeToString()]))


def _raw(number: int, elements: Sequence[bytes]) -> list[bytes]:
    """A field with a BYTES tensor, in parts."""
    parts = []
    for element in elements:
        parts += [len(element).to_bytes(_PREFIX, "little"), element]
    return _field(number, parts)


def _field(number: int, parts: Sequence[bytes]) -> list[bytes]:
    """A length-delimited field, in parts."""
    left, tag = sum(map(len, parts)), number << 3 | _LENGTH_DELIMITED
    size = bytearray()
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return [bytes([tag]) + size, *parts]
