"""A real SMTP server on loopback with a certificate of its own, AUTH and STARTTLS; keeps what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class MailServer:
    """Behaviour of the server, and the mail it was sent."""

    refuse: dict[str, str] = field(default_factory=dict)
    """Address → answer to RCPT."""
    answer: str = "250 OK"
    """To DATA."""
    mails: list[EmailMessage] = field(default_factory=list)
    to: list[list[str]] = field(default_factory=list)
    """Recipients of the envelope of each."""
    tls: list[bool] = field(default_factory=list)
    """Whether each came encrypted."""
    users: list[str] = field(default_factory=list)
    """Users that tried to log in."""
    port: int = 0

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.answer.startswith("250"):
            parsed = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(parsed, EmailMessage)
            self.mails.append(parsed)
            self.to.append(list(envelope.rcpt_tos))
            self.tls.append(server.transport.get_extra_info("ssl_object") is not None)
        return self.answer

    def login(self, server: Any, session: Any, envelope: Any, how: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.users.append(data.login.decode())
        return AuthResult(success=data.password == b"right-and-secret", handled=False)


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 and its key in one PEM file, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@contextlib.contextmanager
def mail_server(
    pem: Path | None = None, *, starttls: bool = False, login: bool = False
) -> Iterator[MailServer]:
    """The server, on a free port; encrypted from the first byte with a certificate and without STARTTLS."""
    kept = MailServer()
    context = None
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)

    def session() -> SMTP:
        more: dict[str, Any] = {}
        if starttls:
            more |= {"tls_context": context, "require_starttls": login}
        if login:
            more |= {
                "authenticator": kept.login, "auth_required": True,
                "auth_require_tls": starttls,
            }  # fmt: skip
        return SMTP(kept, hostname="127.0.0.1", loop=loop, **more)

    loop = asyncio.new_event_loop()
    wrapped = context if context is not None and not starttls else None
    server = loop.run_until_complete(loop.create_server(session, "127.0.0.1", 0, ssl=wrapped))
    kept.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:

        async def end() -> None:
            server.close()
            tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
