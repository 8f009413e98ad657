"""Requests to a token server over real TLS, with a private authority, and through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcbench.oauth.keeper import TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.oauth.transport import MOST_BYTES, Http, Reply, Unsent

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost and its key, in one file."""
    pem = tmp_path_factory.mktemp("tls") / "server.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    name = ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*make, *name, "-keyout", pem, "-out", f"{pem}.crt"], check=True, capture_output=True
    )
    pem.write_bytes(pem.read_bytes() + Path(f"{pem}.crt").read_bytes())
    return pem


@asynccontextmanager
async def answering(*pieces: bytes, heads: list[bytes] | None = None) -> AsyncIterator[Http]:
    """A server that sends an answer in pieces, with pauses between them, and a sender for it.

    `heads` gets the heads of requests.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if heads is not None:
            heads.append(head)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        await closed(writer)

    async with await asyncio.start_server(answer, "localhost", 0) as server:
        url = f"http://localhost:{server.sockets[0].getsockname()[1]}/token"
        yield Http(AuthOptions(token_url=url, client_id="c", client_secret="${env:SECRET}"))
        while len(asyncio.all_tasks()) > 1:  # connections that are still open
            await asyncio.sleep(0.01)


async def asked(sender: Http) -> Reply:
    """The answer to a request."""
    return await sender.send("POST", sender._options.server, {}, "grant_type=x")


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait for that."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def token_server(certificate: Path) -> AsyncIterator[int]:
    """A server that answers everything with an empty object; gives its port."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await closed(writer)

    async with await asyncio.start_server(answer, "localhost", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]
        while len(asyncio.all_tasks()) > 1:  # connections that are still open
            await asyncio.sleep(0.01)


@asynccontextmanager
async def proxy(tunnels: list[str]) -> AsyncIterator[int]:
    """A proxy that tunnels, and notes where to; gives its port."""

    async def copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
        while data := await one.read(2**16):
            other.write(data)
        await closed(other)

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, place, _ = head.split(" ", 2)
        assert method == "CONNECT", head
        tunnels.append(place)
        host, _, port = place.rpartition(":")
        back, forth = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copy(reader, forth), copy(back, writer))

    async with await asyncio.start_server(tunnel, "localhost", 0) as server:
        yield server.sockets[0].getsockname()[1]
        while len(asyncio.all_tasks()) > 1:  # connections that are still open
            await asyncio.sleep(0.01)


def http(port: int, **more: Any) -> Http:
    url = f"https://localhost:{port}/token"
    options = AuthOptions(
        token_url=url, client_id="c", client_secret="${env:SECRET}", timeout=10, **more
    )
    return Http(options)


def test_only_an_authority_that_is_named_is_believed(certificate: Path) -> None:
    async def journey() -> None:
        async with token_server(certificate) as port:
            url, none = f"https://localhost:{port}/token", dict[str, str]()
            ask = ("POST", url, none, "grant_type=x")
            unknown = "its certificate is not accepted: self-signed certificate .*`ca_file` names"
            with pytest.raises(TokenRefused, match=unknown):
                await http(port).send(*ask)
            reply = await http(port, ca_file=f"{certificate}.crt").send(*ask)
            assert (reply.status, reply.body) == (200, b"{}")
            with pytest.raises(TokenRefused, match=r"ca_file /nowhere\.pem: .*No such file"):
                await http(port, ca_file="/nowhere.pem").send(*ask)

    asyncio.run(journey())


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_request_goes_through_a_proxy(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    tunnels: list[str] = []

    async def journey() -> int:
        async with token_server(certificate) as port, proxy(tunnels) as door:
            address = f"http://localhost:{door}"
            more = {"proxy": address} if by == "option" else {}
            if by == "environment":
                monkeypatch.setenv("HTTPS_PROXY", address)
            sender = http(port, ca_file=f"{certificate}.crt", **more)
            reply = await sender.send("POST", f"https://localhost:{port}/token", {}, "a=b")
            assert reply.status == 200
            return port

    port = asyncio.run(journey())
    assert tunnels == [f"localhost:{port}"]


def test_a_users_netrc_does_not_replace_what_a_request_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login u password p\n")
    monkeypatch.setenv("NETRC", str(netrc))
    heads: list[bytes] = []

    async def journey() -> None:
        async with answering(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", heads=heads
        ) as sender:
            for headers in ({}, {"Authorization": "Basic ours"}):
                await sender.send("POST", sender._options.server, headers, "a=b")

    asyncio.run(journey())
    said = [re.findall(rb"(?im)^authorization: (.*?)\r$", head) for head in heads]
    assert said == [[], [b"Basic ours"]]


def test_a_certificate_that_is_not_accepted_says_why_in_few_words(certificate: Path) -> None:
    async def journey() -> str:
        async with token_server(certificate) as port:
            sender = http(port, ca_file=f"{certificate}.crt")
            with pytest.raises(TokenRefused) as found:
                await sender.send("POST", f"https://127.0.0.1:{port}/token", {}, "")
            return str(found.value)

    assert asyncio.run(journey()) == (
        "the token server 127.0.0.1: its certificate is not accepted: "
        "IP address mismatch, certificate is not valid for '127.0.0.1'"
    )


def test_a_server_without_tls_at_an_address_with_it_is_refused() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**14)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await closed(writer)

    async def journey() -> None:
        async with await asyncio.start_server(refuse, "localhost", 0) as server:
            sender = http(server.sockets[0].getsockname()[1])
            with pytest.raises(TokenRefused, match="localhost: no TLS connection: wrong version"):
                await asked(sender)

    asyncio.run(journey())


def test_an_answer_that_cannot_be_unpacked_is_one_line_without_a_made_up_status() -> None:
    async def journey() -> str:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
        async with answering(head + b"not gzip") as sender:
            with pytest.raises(TokenFailed) as found:
                await asked(sender)
            return str(found.value)

    assert asyncio.run(journey()) == (
        "the token server localhost broke off: its answer is incomplete, or not as its headers say"
    )


def test_a_proxy_that_is_away_is_named_and_the_request_counts_as_unsent() -> None:
    sender = http(9, proxy="http://localhost:9")
    with pytest.raises(Unsent, match="the token server localhost cannot be reached"):
        asyncio.run(sender.send("POST", "https://localhost:9/token", {}, "a=b"))


@pytest.mark.parametrize("place", ["server", "proxy"])
@pytest.mark.parametrize("said", [None, b"", b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"])
def test_what_fails_before_the_request_leaves_counts_as_unsent(
    place: str, said: bytes | None
) -> None:
    """A firewall that drops packets, a proxy that refuses a tunnel: no refresh token has left us."""

    async def journey() -> None:
        ended = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            if said is None:
                await ended.wait()
            writer.write(said or b"")
            await closed(writer)

        async with await asyncio.start_server(answer, "localhost", 0) as server:
            port = server.sockets[0].getsockname()[1]
            more = {"proxy": f"http://127.0.0.1:{port}"} if place == "proxy" else {}
            sender = http(9 if more else port, **more)
            sender._options.timeout = 0.5
            with pytest.raises(TokenFailed) as found:
                await asked(sender)
            # No server that answers without TLS was sent more than its greeting.
            assert isinstance(found.value, Unsent | TokenRefused), found.value
            if said and place == "proxy":
                assert "the proxy 127.0.0.1 answers 407 No" in str(found.value)
            ended.set()
            await asyncio.sleep(0.1)

    asyncio.run(journey())


def test_a_request_that_is_out_and_gets_no_answer_may_have_been_processed() -> None:
    async def journey() -> None:
        async with answering(b"", b"", b"", b"HTTP/1.1 200 OK\r\n") as sender:
            sender._options.timeout = 0.1
            with pytest.raises(TokenFailed, match="has not answered") as found:
                await asked(sender)
            assert not isinstance(found.value, Unsent)

    asyncio.run(journey())


def test_an_answer_may_come_in_pieces_and_compressed() -> None:
    whole = b'{"access_token": "abc"}'
    packed = gzip.compress(whole)
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    zipped = head + b"Content-Encoding: gzip\r\n\r\n"

    async def journey() -> None:
        for pieces in (
            (head + b"\r\n" + whole[:5], whole[5:9], whole[9:]),
            (head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + whole[:5] + b"\r\n",
             b"%x\r\n%s\r\n0\r\n\r\n" % (len(whole) - 5, whole[5:])),
            (zipped + packed[:4], packed[4:]),
        ):  # fmt: skip
            async with answering(*pieces) as sender:
                assert (await asked(sender)).body == whole

    asyncio.run(journey())


def test_an_answer_that_is_cut_or_no_gzip_breaks_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"

    async def journey() -> None:
        for answer in (
            head + b"Content-Length: 9\r\n\r\n{}",
            head + b"Content-Encoding: gzip\r\n\r\n{}",
            b"220 mail.example.org\r\n\r\n",
        ):
            async with answering(answer) as sender:
                with pytest.raises(TokenFailed, match="broke off"):
                    await asked(sender)

    asyncio.run(journey())


def test_no_more_is_read_than_a_token_needs() -> None:
    async def journey() -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
        async with answering(head + gzip.compress(bytes(50 * MOST_BYTES))) as sender:
            assert len((await asked(sender)).body) == MOST_BYTES

    asyncio.run(journey())


def test_a_name_that_no_host_can_have_is_refused_in_one_line() -> None:
    with pytest.raises(TokenFailed) as found:
        asyncio.run(http(9, proxy="http://localhost:9").send("POST", "https://a..b/t", {}, ""))
    assert str(found.value).isprintable()
