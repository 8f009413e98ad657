"""Changes to a request's body on its way to the engine; as few as possible.

A model's default fields go *under* the body: they are written first into its JSON object, in which the last
of equal names wins. That needs no parsing. Two kinds of bodies are parsed: bodies with `model_params`, and
all bodies for an engine that opens any path in a request, because their media must be checked first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

BODY_LIMIT = 64 * 2**20
"""Largest request, bytes, of a wrapper that is started without another limit."""

TOO_DEEP = "the request is nested too deeply"
"""The message about a body that cannot be read to its depth."""

_BEGIN = re.compile(rb"[ \t\n\r]*\{[ \t\n\r]*")
_PARAMS = b'"model_params"'


class Refused(Exception):
    """A request that must not reach the engine."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Bodies:
    """The rules for the bodies of one loaded model."""

    def __init__(self, fields: Mapping[str, Any], *, checked: bool, media_root: str | None) -> None:
        """Set the rules.

        Args:
            fields: fields of the body, used unless a request sets them.
            checked: whether to check every image, video and sound in a request.
            media_root: folder whose files a checked request may name as `file://`; None: no file.
        """
        self._rules = {"fields": dict(fields), "checked": checked, "media_root": media_root}
        self._fields = json.dumps(dict(fields)).encode()[1:-1]
        self._checked = checked
        self._root = Path(media_root).resolve() if media_root else None

    def to_json(self) -> dict[str, Any]:
        """The rules as plain data, for `same_rules`."""
        return dict(self._rules)

    def prepared(self, body: bytes) -> bytes:
        """The body for the engine; the same bytes if no change is needed.

        Raises:
            Refused: it names forbidden media, or must be parsed and cannot be.
        """
        if self._checked or _PARAMS in body:
            try:
                body = self._read(body)
            except RecursionError:  # from Python 3.12 on JSON is read deeper than all else recurs
                raise Refused("bad_request", TOO_DEEP) from None
        return laid_under(body, self._fields) if self._fields else body

    def _read(self, body: bytes) -> bytes:
        try:
            data = json.loads(body, object_pairs_hook=_once)
        except ValueError as error:
            raise Refused("bad_request", f"the body is not JSON: {error}") from None
        params = data.pop("model_params", None) if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(params, dict | None):
            raise Refused("bad_request", "the body, or its model_params, is not a JSON object")
        merged = {**(params or {}), **data}
        if self._checked:
            for url in _media(merged.get("messages")):
                self._look_at(url)
        return body if params is None else json.dumps(merged).encode()

    def _look_at(self, url: object) -> None:
        if isinstance(url, str) and url.startswith("data:"):
            return
        if not isinstance(url, str) or not url.startswith("file:///"):
            raise Refused(
                "media_not_allowed",
                "an image must be a data: URI, or a file:// URI below the media_root",
            )
        if self._root is None:
            raise Refused(
                "media_not_allowed",
                "file:// needs a media_root, and the model was loaded without one: send data: URIs",
            )
        try:
            # both readings of an engine: as it is, or as a URL
            readings = {url[7:], unquote(urlparse(url).path)}
            inside = all(Path(one).resolve().is_relative_to(self._root) for one in readings)
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
            inside = False
        if not inside:
            # the path is not named: errors do not repeat requests
            raise Refused(
                "media_not_allowed", f"a file:// path is not below the media_root {self._root}"
            )


def same_rules(offer: Mapping[str, Any]) -> Callable[[bytes], bytes | None]:
    """The rules from `Bodies.to_json` in another process: gives `Bodies.prepared`; None: refused."""
    rules = Bodies(offer["fields"], checked=offer["checked"], media_root=offer["media_root"])

    def prepared(body: bytes) -> bytes | None:
        try:
            return rules.prepared(body)
        except Refused:
            return None

    return prepared


def laid_under(body: bytes, fields: bytes) -> bytes:
    """The body with `fields`, `"a":1,"b":2`, put first into its object; any other body unchanged."""
    begin = _BEGIN.match(body)
    if begin is None:
        return body
    end = begin.end()
    comma = b"" if body[end : end + 1] == b"}" else b","
    return b"".join((body[:end], fields, comma, memoryview(body)[end:]))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with distinct names: of two equal names, we and the engine might read different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _media(data: object) -> Iterator[object]:
    """Every URL anywhere in messages: the values of `image_url`, `video_url`, `audio_url` and their like."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name.endswith("_url") and not isinstance(value, dict):
                yield value
            elif name.endswith("_url"):
                yield value.get("url")
            yield from _media(value)
    elif isinstance(data, list):
        for value in data:
            yield from _media(value)
