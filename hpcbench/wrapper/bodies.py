"""What is done to a request's body on its way to the engine; as little as possible.

Fields every request of a model gets are laid *under* the body: written first into its JSON object, where
of equal names the last counts. Nothing is parsed for that. Two kinds of bodies are parsed: those that hold
`model_params`, and all of an engine that opens any path a request names, whose media are looked at first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

_BEGIN = re.compile(rb"[ \t\n\r]*\{[ \t\n\r]*")
_PARAMS = b'"model_params"'


class Refused(Exception):
    """A request that the engine is not to see."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Bodies:
    """The rules for the bodies of one loaded model."""

    def __init__(self, fields: Mapping[str, Any], *, checked: bool, media_root: str | None) -> None:
        """Set the rules.

        Args:
            fields: fields of the body that count where a request does not set them.
            checked: whether every image, video and sound a request names is looked at here.
            media_root: folder whose files requests may then name as `file://`; None: no file.
        """
        self._fields = json.dumps(dict(fields)).encode()[1:-1]
        self._checked = checked
        self._root = Path(media_root).resolve() if media_root else None

    def prepared(self, body: bytes) -> bytes:
        """The body as the engine gets it; the very same bytes where nothing is to be done.

        Raises:
            Refused: it names media that it may not, or cannot be read although it has to be.
        """
        if self._checked or _PARAMS in body:
            body = self._read(body)
        return laid_under(body, self._fields) if self._fields else body

    def _read(self, body: bytes) -> bytes:
        try:
            data = json.loads(body, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise Refused("bad_request", f"the body is not JSON: {error}") from None
        params = data.pop("model_params", None) if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(params, dict | None):
            raise Refused("bad_request", "the body or its model_params is not a JSON object")
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
                "media_not_allowed", "images must be data: URIs or file:// paths (media_root)"
            )
        if self._root is None:
            raise Refused("media_not_allowed", "no folder is open for file:// (media_root)")
        try:
            # however the engine reads it: as it stands, or as a URL
            readings = {url[7:], unquote(urlparse(url).path)}
            inside = all(Path(one).resolve().is_relative_to(self._root) for one in readings)
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a circle of links
            inside = False
        if not inside:
            # which one is not said: errors do not repeat requests
            raise Refused("media_not_allowed", f"a file:// path is not below {self._root}")


def laid_under(body: bytes, fields: bytes) -> bytes:
    """The body with `fields`, `"a":1,"b":2`, put first into its object; any other body as it is."""
    begin = _BEGIN.match(body)
    if begin is None:
        return body
    end = begin.end()
    comma = b"" if body[end : end + 1] == b"}" else b","
    return b"".join((body[:end], fields, comma, memoryview(body)[end:]))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different: of two, we and the engine might look at another one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
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
