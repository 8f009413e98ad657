"""A notifier that posts to a URL: JSON, or the form of a chat."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from hpcbench import retry_after, secret
from hpcbench.errors import unreached
from hpcbench.notify import (
    TIMEOUT,
    Busy,
    Refused,
    messages,
)

Form = Literal["json", "text", "slack", "mattermost", "teams"]

_FORMS: Mapping[str, Callable[[messages.Message], dict[str, Any]]] = {
    "slack": messages.slack, "mattermost": messages.mattermost, "teams": messages.teams,
}  # fmt: skip


class WebhookNotifier:
    """Posts the event to a URL, as JSON or in the form of a chat."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the webhook notifier."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        url: str
        """Where to; usually a secret, so a reference: `${env:WEBHOOK_URL}`."""
        form: Form = "json"
        """`json`: the event as it is; `slack`, `mattermost`, `teams` (a Workflows webhook): what these show;
        `text`: an object with one key `text`, the summary, for other chats."""
        report_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
        """Where reports are on the web, if they are; `{experiment}` in it is the id."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))
        place = urlsplit(self.options.url)
        # Errors may quote a part of the URL, and this part is the secret.
        for part in (place.path, place.query, *place.path.split("/")):
            if len(part) >= 8:
                secret.remember(part)

    def send(self, event: Mapping[str, Any]) -> None:
        """Post it.

        Raises:
            Refused: the answer is not 2xx, and would be the same again.
            OSError: a later try may succeed: no connection, no answer in time, 408, 425, 429, 5xx.
        """
        place = urlsplit(self.options.url)
        if place.scheme not in ("https", "http") or not place.hostname:
            raise Refused("the URL of a webhook must begin with https://")
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self.options.url,
            data=json.dumps(self._body(event), ensure_ascii=False).encode("utf-8", "replace"),
            headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": "hpcbench"},
            method="POST",
        )
        if identity := event.get("id"):
            request.add_header("Idempotency-Key", messages.one_line(identity))
        try:
            with _OPENER.open(request, timeout=TIMEOUT) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            raise _of_answer(error) from None
        except urllib.error.URLError as error:
            raise Busy(f"{place.hostname}: {unreached(error) or error.reason}") from None
        except TimeoutError:
            raise Busy(f"{place.hostname}: no answer in {TIMEOUT:g} s") from None
        except (HTTPException, ValueError) as error:
            raise Refused(f"{place.hostname}: {error}") from None

    def _body(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.options.form == "json":
            return event
        message = messages.described(event, self.options.report_url)
        if self.options.form == "text":
            return {"text": message.text}
        return _FORMS[self.options.form](message)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET that delivers nothing."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _of_answer(error: urllib.error.HTTPError) -> Exception:
    """The fault for an answer with an error."""
    try:
        said = messages.one_line(error.read(2_000).decode("utf-8", "replace"))[:200]
    except (OSError, HTTPException):
        said = ""
    text = f"HTTP {error.code} {messages.one_line(error.reason)}{f': {said}' if said else ''}"
    if error.code in (408, 425, 429) or error.code >= 500:
        headers = {name.lower(): value for name, value in error.headers.items()}
        return Busy(text, retry_after.seconds(headers))
    if 300 <= error.code < 400:
        return Refused(f"{text}: the server redirects to another URL; set that URL")
    return Refused(text)
