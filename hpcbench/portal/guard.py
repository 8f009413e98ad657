"""The guard before every route: plain ASGI, so that it checks every request, streams included.

The checks, in this order: decisive headers occur once; the host name is ours; no page of another site caused
the request; the client is known and has the permission; the body is small. Then the answer gets the headers
of all answers, and the request a line in the log.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException

from hpcbench import secret
from hpcbench.portal import headers as rules
from hpcbench.portal.access_tokens import Desk, Requester
from hpcbench.portal.audit_log import Journal, printable
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault, bad_request, refused
from hpcbench.portal.models.base import Fault
from hpcbench.portal.peer_accounts import Peer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

API = "/api/v1"
"""Path of the API, below the prefix of a proxy."""

PLAIN = "/plain"
"""Path of the script-free pages."""

HEALTH = "/healthz"
"""Path of the route that only says that the portal is up."""

WHO = "hpcbench.who"
"""Key of the request's scope: the client, or None."""

PEER = "hpcbench.peer"
"""Key of the request's scope: the account at the other end of the connection."""

IDENTITY = "hpcbench.id"
"""Key of the request's scope: the request's id."""

WHAT = "hpcbench.what"
"""Key of the request's scope: the route's description of its change, for the log of changes."""

LARGEST_BODY = 1_000_000
"""Largest body of a request, bytes."""

LARGEST_PAGE = 32_000_000
"""Largest body of a request of the playground, which contains page images, bytes."""

LARGEST_ANSWER = 64_000_000
"""Largest answer, bytes; exports, which are streamed, may be larger."""

LARGEST_EXPORT = 4_000_000_000
"""Largest export, bytes."""

SLOWEST_SECONDS = 60.0
"""Longest time until a route starts its answer; then the request fails: the file server hangs."""

_SAFE = frozenset(("GET", "HEAD"))
_CHANGING = frozenset(("POST", "PUT", "DELETE"))
_OPEN = frozenset((f"{API}/session", f"{API}/session/refresh", f"{PLAIN}/login"))
_UNCHANGED = frozenset((f"{API}/definitions/check", f"{API}/session/refresh"))
_PASSIVE = frozenset((
    HEALTH, f"{API}/events", f"{API}/events/poll", f"{API}/ws", f"{API}/session/refresh",
    f"{API}/session/codes",
))  # fmt: skip


@dataclass
class Access:
    """The rules of access."""

    desk: Desk
    """Codes, sessions, tokens."""
    journal: Journal
    """Logs of requests and changes."""
    hosts: frozenset[str] = frozenset()
    """Allowed host names besides the loopback's."""
    crowded: bool = False
    """Whether memory is so short that the guard refuses further work."""


@dataclass
class _Asked:
    """A request in progress."""

    scope: Scope
    identity: str
    method: str
    path: str
    api: bool
    began: float = field(default_factory=time.perf_counter)
    who: Requester | None = None
    peer: Peer | None = None
    slashes: int = 0
    status: int = 0
    size: int = 0


class Guard:
    """Checks every request to the application.

    Args:
        app: the routes.
        portal: the portal, with the user's options.
        access: the rules of access.
        public: paths that any client may get; all other paths need a sign-in.
    """

    def __init__(self, app: Asgi, portal: Portal, access: Access, public: frozenset[str]) -> None:
        self._app, self._portal, self._access = app, portal, access
        self._options = portal.options
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection: a request, a WebSocket, or the server's lifespan."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        asked = self._asked(scope)
        answer = _AnswerSender(asked, send, socket=scope["type"] == "websocket")
        try:
            self._admit(asked)
            if asked.slashes and asked.method in _SAFE and not answer.socket:
                await answer.lead(asked.slashes)
                return
            await self._pass(asked, receive, answer)
        except PortalFault as fault:
            await answer.refuse(fault)
        except Exception as bug:  # noqa: BLE001 - the last handler: a client never gets a traceback
            if answer.too_large:
                await answer.refuse(_TOO_LARGE)
            else:
                self._access.journal.bug(asked.identity, bug)
                remedy = (
                    f"report it with the traceback: the portal's log has it under {asked.identity}"
                )
                await answer.refuse(PortalFault(500, "bug", "hpcbench has a bug", remedy))
        finally:
            self._write_down(asked)

    def _asked(self, scope: Scope) -> _Asked:
        identity = secrets.token_hex(6)
        path = self._below_prefix(str(scope["path"]))
        bare = path.rstrip("/") or path
        slashes, path = len(path) - len(bare), bare
        # Routes see no prefix: their answers have only relative addresses.
        scope["path"], scope["root_path"] = path, ""
        scope["raw_path"] = path.encode("utf-8", "surrogateescape")
        scope[IDENTITY] = identity
        peer = scope.get(PEER)
        method = str(scope.get("method", "GET"))
        return _Asked(
            scope, identity, method, path, path.startswith("/api"), peer=peer, slashes=slashes
        )

    def _below_prefix(self, path: str) -> str:
        """A path without the proxy's prefix; some proxies remove the prefix themselves."""
        prefix = self._options.root_path
        if prefix and (path == prefix or path.startswith(prefix + "/")):
            return path[len(prefix) :] or "/"
        return path

    def _admit(self, asked: _Asked) -> None:
        scope = asked.scope
        found = rules.read(scope["headers"])
        trusted = asked.peer is not None and asked.peer.proxy
        forwarded = found.get("x-forwarded-host", "").split(",")[-1].strip() if trusted else ""
        origin_of = found.get("x-forwarded-for", "").split(",")[-1].strip() if trusted else ""
        scope["scheme"] = (
            "https"
            if trusted and found.get("x-forwarded-proto", "").endswith("https")
            else scope["scheme"]
        )
        # Any client can write these headers: no code behind the guard may believe them.
        scope["headers"] = [
            pair for pair in scope["headers"]
            if not pair[0].startswith(b"x-forwarded-") and pair[0] != b"forwarded"
        ]  # fmt: skip
        rules.check_host(found.get("host"), self._access.hosts)
        here = frozenset(one for one in (found.get("host", "").lower(), forwarded.lower()) if one)
        changing = asked.method in _CHANGING
        if not changing and asked.method not in _SAFE:
            raise PortalFault(405, "refused", "the API has no such method")
        _check_length(found.get("content-length", "0"), _largest(asked.path))
        if changing or asked.path not in self._public:
            rules.check_site(found, here)
            form = asked.path.startswith(f"{PLAIN}/")
            if changing and not form and found.get("x-hpcbench") != "1":
                raise refused("a change needs the header X-Hpcbench: 1", "add the header")
            self._authenticate(asked, found, origin_of or str(asked.peer and asked.peer.uid))
            if scope["type"] == "websocket" and asked.who and asked.who.kind == "session":
                rules.check_site(found, here, strict=True)
        if self._access.crowded and asked.api and asked.path not in _PASSIVE:
            raise PortalFault(503, "busy", "the portal is short of memory", "try again in a moment")
        if asked.path not in _PASSIVE:
            self._portal.used = time.monotonic()

    def _authenticate(self, asked: _Asked, found: dict[str, str], one: str) -> None:
        desk = self._access.desk
        asked.who = None
        jar = rules.cookies(found.get("cookie"))
        if "authorization" in found:
            kind, _, token = found["authorization"].partition(" ")
            # Failures count per token: a script with an old token delays only itself.
            one = f"{one}:{token.split('_')[1] if token.count('_') > 1 else ''}"
            wait = desk.backoff.wait(one)
            if wait > 0:
                raise _TooOften(wait)
            asked.who = desk.bearer(token.strip()) if kind.lower() == "bearer" else None
            if asked.who is None:
                desk.backoff.failed(one)
                raise PortalFault(
                    401,
                    "not_signed_in",
                    "the token is unknown or has expired",
                    "create one: `hpcbench portal token create`",
                )
        elif asked.path.startswith(PLAIN):
            asked.who = desk.sessions.who(jar.get(desk.plain_cookie, ""))
        if asked.who is None:
            asked.who = desk.sessions.who(jar.get(desk.access_cookie, ""))
        asked.scope[WHO] = asked.who
        if asked.who is None:
            if asked.path in _OPEN and (asked.method == "POST" or asked.path.startswith(PLAIN)):
                return
            raise PortalFault(
                401, "not_signed_in", "not signed in",
                "open the link that `hpcbench portal url` prints; programs send `Authorization: Bearer`",
            )  # fmt: skip
        self._authorise(asked, asked.who)

    def _authorise(self, asked: _Asked, who: Requester) -> None:
        """Refuse actions outside the client's scopes, and actions that the user's options do not allow."""
        path, changing = asked.path, asked.method in _CHANGING
        if who.kind == "plain" and not path.startswith(PLAIN):
            raise refused("this sign-in is only for the pages under /plain")
        needed = "read"
        if changing and path.startswith((f"{API}/submissions", f"{API}/playground")):
            if not self._options.may_submit:
                raise refused("this portal may not run commands", "start it with --allow-submit")
            needed = "submit"
        elif path.startswith((f"{API}/tokens", f"{API}/session/codes")):
            allowed = {"owner"} if path.startswith(f"{API}/session") else {"owner", "session"}
            if who.kind not in allowed:
                raise refused("a token has no access to this", "sign in with a browser")
        elif changing and path not in _UNCHANGED and not path.startswith((f"{API}/session", PLAIN)):
            if path.startswith(f"{API}/definitions") and not self._options.may_edit:
                raise refused("this portal may not write files", "start it with --allow-edit")
            needed = "plan-edit"
        if needed not in who.scopes:
            raise refused(f"the token lacks the scope `{needed}`")

    async def _pass(self, asked: _Asked, receive: Receive, answer: _AnswerSender) -> None:
        """Let the routes answer, within limits of size and time."""
        taken, most = 0, _largest(asked.path)

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if message["type"] == "http.request" and taken > most:
                raise HTTPException(413, _too_large(most).error)  # FastAPI passes it on unchanged
            return message

        if answer.socket:
            await self._app(asked.scope, bounded, answer)
            return
        task = asyncio.ensure_future(self._app(asked.scope, bounded, answer))
        started = asyncio.ensure_future(answer.started.wait())
        try:
            await asyncio.wait(
                {task, started}, timeout=SLOWEST_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not task.done() and not started.done():
                answer.deaf = True
                raise PortalFault(
                    503,
                    "busy",
                    "the request takes too long: the file system may hang",
                    "try again later",
                )
            await task
        finally:
            started.cancel()
            if not task.done():
                task.cancel()

    def _write_down(self, asked: _Asked) -> None:
        took = (time.perf_counter() - asked.began) * 1000
        who = f"{asked.who.kind}:{asked.who.id}" if asked.who else "-"
        peer = asked.peer.uid if asked.peer else None
        path = printable(asked.path, 300)
        self._access.journal.access(
            f"{asked.identity} {asked.method} {path} {asked.status} {asked.size}B {took:.0f}ms "
            f"{who} uid={peer}"
        )
        if asked.method in _CHANGING and asked.path not in _UNCHANGED:
            self._access.journal.change(
                id=asked.identity, who=who, uid=peer, method=asked.method, path=path, status=asked.status,
                what=printable(str(asked.scope.get(WHAT, "")), 300),
            )  # fmt: skip


class _AnswerSender:
    """Sends an answer with the headers of all answers, up to the size limit."""

    def __init__(self, asked: _Asked, send: Send, *, socket: bool) -> None:
        self._asked, self._send, self.socket = asked, send, socket
        self.started = asyncio.Event()
        self.deaf = False
        self.too_large = False
        export = asked.path.endswith("/export")
        self._most = LARGEST_EXPORT if export else LARGEST_ANSWER

    async def __call__(self, message: Message) -> None:
        if self.deaf or self.too_large:
            return
        if message["type"] == "http.response.start":
            given = dict(message.get("headers", ()))
            self._count(int(given.get(b"content-length", b"0")), 0)
            self.started.set()
            self._asked.status = message["status"]
            message["headers"] = rules.finish(
                message.get("headers", ()), api=self._private(), identity=self._asked.identity
            )
        elif message["type"] == "http.response.body":
            self._count(len(message.get("body", b"")), self._asked.size)
            self._asked.size += len(message.get("body", b""))
        elif message["type"] == "websocket.accept":
            self._asked.status = 101
            self.started.set()
        await self._send(message)

    def _count(self, more: int, before: int) -> None:
        if before + more > self._most:
            # Code in between may handle the exception as its own: the mark stays.
            self.too_large = True
            raise _TOO_LARGE

    def _private(self) -> bool:
        return self._asked.path.startswith(("/api", PLAIN, HEALTH))

    async def lead(self, slashes: int) -> None:
        """Redirect to the same address without its last slashes: links are relative to the page's address."""
        query = bytes(self._asked.scope.get("query_string", b""))
        name = quote(self._asked.path.rpartition("/")[2], safe="").encode()
        there = b"../" * slashes + name + (b"?" + query if query else b"")
        pairs = [(b"location", there), (b"content-length", b"0")]
        await self({"type": "http.response.start", "status": 308, "headers": pairs})
        await self({"type": "http.response.body", "body": b""})

    async def refuse(self, fault: PortalFault) -> None:
        """Send the fault, if the answer has not started; else the connection ends in the middle."""
        asked = self._asked
        if self.started.is_set():
            return
        self.deaf, asked.status = True, fault.status
        body = Fault(
            error=secret.mask(fault.error),
            remedy=secret.mask(fault.remedy),
            code=fault.code,
            id=asked.identity,
        )
        text = json.dumps(body.model_dump(), ensure_ascii=False).encode()
        pairs = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(text)).encode()),
        ]
        if fault.status == 401 and asked.path.startswith(PLAIN):
            text = b""
            fault = PortalFault(303, fault.code, fault.error)
            depth = asked.path.strip("/").count("/") + asked.slashes
            pairs = [(b"location", b"../" * depth + b"plain/login"), (b"content-length", b"0")]
            asked.status = 303
        if isinstance(fault, _TooOften):
            pairs.append((b"retry-after", str(fault.seconds).encode()))
        if fault.status == 413:
            pairs.append((b"connection", b"close"))
        pairs = rules.finish(pairs, api=True, identity=asked.identity)
        kind = "http"
        if self.socket:
            if "websocket.http.response" not in (asked.scope.get("extensions") or {}):
                await self._send({"type": "websocket.close", "code": 1008, "reason": fault.error})
                return
            kind = "websocket.http"
        await self._send(
            {"type": f"{kind}.response.start", "status": fault.status, "headers": pairs}
        )
        await self._send({"type": f"{kind}.response.body", "body": text})


def _largest(path: str) -> int:
    """Largest body of a request to a path, bytes."""
    return LARGEST_PAGE if path.startswith(f"{API}/playground") else LARGEST_BODY


def _check_length(said: str, most: int) -> None:
    if not said.isdigit() or len(said) > 18:
        raise bad_request("the Content-Length header is malformed")
    if int(said) > most:
        raise _too_large(most)


def _too_large(most: int) -> PortalFault:
    what = f"the request has more than {most // 1_000_000} MB"
    return PortalFault(413, "too_large", what, "send less")


_TOO_LARGE = PortalFault(
    500, "too_large", "the answer is too large", "request fewer rows, or a part"
)


class _TooOften(PortalFault):
    def __init__(self, wait: float) -> None:
        self.seconds = int(wait) + 1
        super().__init__(429, "busy", "too many failed sign-ins", f"try again in {self.seconds} s")
