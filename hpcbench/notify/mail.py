"""A notifier that sends e-mail."""

from __future__ import annotations

import base64
import email.utils
import ipaddress
import os
import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hpcbench import secret
from hpcbench.notify import (
    TIMEOUT,
    Busy,
    Refused,
    messages,
)

ATTACHED_BYTES = 10 * 2**20
"""Most bytes attached to a mail; larger reports are named by their path."""

PORTS: Mapping[str, int] = {"starttls": 587, "ssl": 465, "plain": 25}


class EmailNotifier:
    """Sends an e-mail through an SMTP server: text, a small HTML page, and optionally reports."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the email notifier."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        host: str = Field(pattern=r"^[^\s/@]+$")
        """The SMTP server."""
        port: int | None = Field(default=None, gt=0, lt=65536)
        """Its port; none: 587 for starttls, 465 for ssl, 25 for plain."""
        security: Literal["starttls", "ssl", "plain"] = "starttls"
        """`starttls`: encrypted after a greeting, or nothing is sent; `ssl`: from the first byte; `plain`:
        not at all, to this machine only unless `allow_plain`."""
        allow_plain: bool = False
        """Whether `plain` may go over a network, where every machine on the way can read it."""
        user: str | None = None
        """User of the server; none: it asks for none."""
        password: str | None = None
        """Password; a reference: `${file:~/.smtp-password}`."""
        sender: str
        """Address it is from: `bench@example.org`, or `hpcbench <bench@example.org>`."""
        to: tuple[str, ...] = Field(min_length=1)
        """Addresses it goes to."""
        attach: tuple[str, ...] = ()
        """Files of the report to attach: `report.html`."""
        report_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
        """Where reports are on the web, if they are; `{experiment}` in it is the id."""
        ca_file: str | None = None
        """Certificates to trust instead of the system's, PEM."""

        @field_validator("sender", "to")
        @classmethod
        def _addresses(cls, value: Any) -> Any:
            for one in [value] if isinstance(value, str) else value:
                if not secret.REFERENCE.search(one):
                    address(one)
            return value

        @field_validator("attach")
        @classmethod
        def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
            if wrong := [name for name in value if not name or Path(name).name != name]:
                raise ValueError(f"'{wrong[0]}' is not the name of a file in the report")
            return value

        @model_validator(mode="after")
        def _whole(self) -> EmailNotifier.Options:
            if (self.user is None) != (self.password is None):
                raise ValueError("set both user and password, or neither")
            return self

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))
        user, password = self.options.user or "", self.options.password or ""
        for shown in (
            password,
            f"\0{user}\0{password}",
        ):  # as they are sent, and may return in errors
            if password:
                secret.remember(base64.b64encode(shown.encode()).decode())

    def send(self, event: Mapping[str, Any]) -> str | None:
        """Send it; returns the refused addresses, if others were accepted.

        Raises:
            Refused: the server refuses the sender or all receivers, or the connection is not allowed.
            OSError: a later try may succeed.
        """
        message = self.message(event)
        try:
            with self._server() as server:
                if self.options.user is not None and self.options.password is not None:
                    server.login(self.options.user, self.options.password)
                refused = server.send_message(message)
        except smtplib.SMTPException as error:
            raise _of_server(error) from None
        except ssl.SSLError as error:
            raise Refused(f"{self.options.host}: {error.reason or error}") from None
        return f"not delivered to {_refusals(refused)}" if refused else None

    def message(self, event: Mapping[str, Any]) -> EmailMessage:
        """The mail."""
        content = messages.described(event, self.options.report_url)
        mail = EmailMessage()
        mail["Subject"] = messages.one_line(content.title)
        mail["From"] = address(self.options.sender)
        mail["To"] = [address(one) for one in self.options.to]
        mail["Date"] = email.utils.formatdate(localtime=True)
        # Equal events have equal ids: a mail program shows a repeated mail once.
        identity = "".join(
            one
            for one in str(event.get("id", ""))
            if one.isascii() and (one.isalnum() or one in "-.")
        )
        mail["Message-ID"] = (
            f"<{identity}@hpcbench.invalid>" if identity else email.utils.make_msgid()
        )
        mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
        files, left_out = self._files(event)
        mail.set_content(content.plain + left_out)
        mail.add_alternative(messages.page(content), subtype="html")
        for path in files:
            text = path.suffix in (".html", ".md", ".json", ".xml", ".csv", ".txt")
            kind = {".html": "html", ".xml": "xml", ".csv": "csv"}.get(path.suffix, "plain")
            mail.add_attachment(
                path.read_bytes(),
                maintype="text" if text else "application",
                subtype=kind if text else "octet-stream",
                filename=path.name,
            )
        return mail

    def _files(self, event: Mapping[str, Any]) -> tuple[list[Path], str]:
        """Files to attach, and a text about missing or too large files."""
        if not event.get("report"):
            return [], ""
        found: list[Path] = []
        room, said = ATTACHED_BYTES, ""
        for name in self.options.attach:
            path = Path(str(event["report"])) / name
            size = path.stat().st_size if path.is_file() else None
            if size is None:
                said += f"\nnot attached: {name} is not in the report"
            elif size > room:
                said += f"\nnot attached: {name} is too large for a mail ({size / 2**20:.0f} MiB)"
            else:
                found.append(path)
                room -= size
        return found, said

    def _server(self) -> smtplib.SMTP:
        """The server, greeted, with encryption unless the options turn it off."""
        chosen = self.options
        port = chosen.port or PORTS[chosen.security]
        if chosen.security == "plain":
            if not chosen.allow_plain and not on_this_machine(chosen.host):
                raise Refused(
                    f"{chosen.host} is not this machine, and mail would go there unencrypted: "
                    "set security: starttls or ssl, or allow_plain: true"
                )
            return smtplib.SMTP(chosen.host, port, timeout=TIMEOUT)
        trusted = ssl.create_default_context(cafile=_path(chosen.ca_file))
        if chosen.security == "ssl":
            return smtplib.SMTP_SSL(chosen.host, port, timeout=TIMEOUT, context=trusted)
        server = smtplib.SMTP(chosen.host, port, timeout=TIMEOUT)
        try:
            server.starttls(context=trusted)
        except BaseException:
            server.close()
            raise
        return server


def address(text: str) -> Address:
    """One address of a mail, with or without a name.

    Raises:
        ValueError: it is none, or contains a line break or a letter that not all mail servers accept.
    """
    if messages.one_line(text) != text.strip() or not text.isascii():
        raise ValueError(f"{text!r} is not an e-mail address of ASCII characters")
    name, spec = email.utils.parseaddr(text)
    user, at, domain = spec.rpartition("@")
    if not (user and at and domain) or (text.count("@") > 1 and not name):
        raise ValueError(f"'{text}' is not an e-mail address")
    try:
        return Address(display_name=name, addr_spec=spec)
    except Exception as error:  # noqa: BLE001 - several types, also IndexError
        raise ValueError(f"'{text}' is not an e-mail address") from error


def on_this_machine(host: str) -> bool:
    """Whether a name or address means this machine and no other."""
    try:
        found = {one[4][0] for one in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(
        ipaddress.ip_address(str(one).split("%")[0]).is_loopback for one in found
    )


def _of_server(error: smtplib.SMTPException) -> Exception:
    """The fault for a server's answer; a permanent error is final: repeated tries may lock the account."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        text = _refusals(error.recipients)
        return Refused(text) if codes and min(codes) >= 500 else Busy(text)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Refused(messages.one_line(error))
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        shown = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        text = f"{error.smtp_code} {messages.one_line(shown)[:200]}"
        final = error.smtp_code >= 500 or isinstance(error, smtplib.SMTPAuthenticationError)
        return Refused(text) if final else Busy(text)
    return Busy(messages.one_line(error)[:200])


def _refusals(refused: Mapping[str, tuple[int, bytes]]) -> str:
    return ", ".join(
        f"{one}: {code} {messages.one_line(said.decode('utf-8', 'replace'))[:100]}"
        for one, (code, said) in refused.items()
    )


def _path(text: str | None) -> str | None:
    return os.path.expandvars(Path(text).expanduser()) if text else None
