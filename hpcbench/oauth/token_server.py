"""Gets tokens: from the file that another process wrote, by a refresh token, or by a full authentication.

One process at a time asks, under the lease of the store; the others read what it wrote. The lease only saves
requests, except for refresh tokens: a server that rotates them takes a second use for theft. So a refresh
token is marked as sent, on the disk, before it is sent, and the new one is on the disk before it is used. A
marked one is sent again only if the server is known not to rotate.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from hpcbench import retry_after, secret
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.oauth import token_file, token_messages
from hpcbench.oauth.keeper import GrantedToken, Kind, TokenFailed, TokenRefused
from hpcbench.oauth.lifecycle import Token
from hpcbench.oauth.options import SECRETS, AuthOptions
from hpcbench.oauth.token_file import Record, Store
from hpcbench.oauth.token_messages import GrantRefused
from hpcbench.oauth.transport import Http, Reply, Transport, Unsent, discover

PATIENCE_SECONDS = 75.0
"""Longest wait for another process's request: longer than a dead holder's silence."""

CLOCKS_AGREE = 30.0
"""Difference of two clocks, seconds, that servers accept in an assertion's times."""

HASH_ROUNDS = 100_000
"""Rounds of the hash that a password has in a token's file: they make guessing slow."""

_NOT_PROCESSED = frozenset({429, 503})
"""Answers that say that the server did nothing."""

_LOG = logging.getLogger("hpcbench.oauth")


class TokenServer:
    """The `Source` of a credential.

    Args:
        options: the credential.
        kept: its file; None: tokens stay in this process.
        transport: sends requests.
        allow_http: whether a discovered address may be plain HTTP.
        poll: seconds between looks at another process's request.
    """

    def __init__(
        self,
        options: AuthOptions,
        kept: Store | None,
        transport: Transport | None = None,
        *,
        allow_http: bool = False,
        poll: float = 0.4,
    ) -> None:
        self.options, self._store = options, kept
        self._transport = transport or Http(options)
        self._allow_http, self._poll = allow_http, poll
        self._endpoint = options.token_url
        self._memory: Record | None = None
        """The record, where there is no file."""
        self._proof: str | None = None
        """Made of our secrets: another secret's token does not say that ours is right."""
        self._heard: tuple[str, float] | None = None
        """Boot and time of the record of the token that we returned last."""
        self._ahead = 0.0
        """Seconds that the server's clock is ahead of ours, as far as it matters."""
        self._unsaved: tuple[Record, Record] | None = None
        """An answer to a refresh token that could not be written, and the marked record that it follows."""
        self._own: TokenServer | None = None
        """Asks for tokens of this process while the file cannot be used."""

    async def obtain(self, old: str | None, *, full: bool) -> GrantedToken:
        """See `Source`."""
        older = None if full else self._heard
        try:
            self._proof = _proof(self.options)
            if (found := self._other(await self._read(), old, older)) is not None:
                return GrantedToken(found, "cache")
            async with self._alone(old, older) as found:
                if found is not None:
                    return GrantedToken(found, "cache")
                if self._unsaved is not None:
                    await self._write(*self._unsaved)
                    self._unsaved = None
                    if (found := self._other(await self._read(), old, older)) is not None:
                        return GrantedToken(found, "refresh_token")
                await self._whole()
                return await self._ask(await self._read(), full=full)
        except HpcbenchError as error:
            raise TokenRefused(str(error)) from None
        except OSError as error:
            if self.options.grant_type == "refresh_token":
                raise TokenFailed(f"the file of tokens: {error}", kind="refresh_token") from None
            return await self._without_file(error).obtain(old, full=full)

    def _without_file(self, error: OSError) -> TokenServer:
        """Asks for tokens of this process alone: no other needs them, if they are not refresh tokens."""
        if self._own is None:
            self._own = TokenServer(
                self.options, None, self._transport, allow_http=self._allow_http
            )
            _LOG.warning("this process asks for tokens of its own: the file of tokens: %s", error)
        return self._own

    async def login(self, refresh: str | None = None) -> GrantedToken:
        """Authenticate now, whatever the file holds, and replace it.

        Args:
            refresh: a new first refresh token, for the grant `refresh_token`.

        Raises:
            TokenFailed: there is no token.
        """
        self._proof = _proof(self.options)
        async with self._alone(None, None, adopt=False):
            before = await self._read()
            if refresh is None:
                granted = await self._ask(before, full=True)
                kept = await self._read()
                if kept is None or kept.access != granted.token.access:
                    raise TokenFailed("the token is not kept: its file cannot be written")
                return granted
            secret.remember(refresh)
            try:
                return await self._refreshed(self._empty(refresh, before))
            except TokenRefused:
                if before is not None:  # a mistyped token ends no chain
                    await self._write(self._now(before))
                raise
            except OSError as error:
                raise TokenFailed(f"the file of tokens: {error}", kind="refresh_token") from None

    def _other(
        self, record: Record | None, old: str | None, older: tuple[str, float] | None
    ) -> Token | None:
        """The token of another process, if it can be used: not `old`, unless it was given again since."""
        if record is None or self._store is None or not self._ours(record):
            return None
        # A server may repeat a client's token until it ends. Other grants also rewrite records to mark them.
        again = older is not None and self.options.grant_type == "client_credentials"
        if record.access == old and not (again and older != (record.boot, record.since)):
            return None
        token = self._store.token(record)
        if token is None or token.state(token_file.now()) == "expired":
            return None
        self._heard = record.boot, record.since
        return token

    def _ours(self, record: Record) -> bool:
        return record.proof in (None, self._proof)

    async def _whole(self) -> None:
        """Refuse a damaged file of refresh tokens: which of them was sent last is not known."""
        if self._store is None or self.options.grant_type != "refresh_token":
            return
        if await asyncio.to_thread(self._store.damaged):
            raise TokenRefused(
                f"{self._store.path} is damaged, so its refresh token is lost: {self._remedy()}",
                kind="refresh_token",
            )

    @contextlib.asynccontextmanager
    async def _alone(
        self, old: str | None, older: tuple[str, float] | None, *, adopt: bool = True
    ) -> AsyncIterator[Token | None]:
        """Hold the lease while inside; or yield the token that another process got meanwhile."""
        if self._store is None:
            yield None
            return
        until = token_file.now() + PATIENCE_SECONDS
        while True:
            async with contextlib.AsyncExitStack() as stack:
                held = contextlib.ExitStack()
                stack.push_async_callback(asyncio.to_thread, held.close)
                mine = await asyncio.to_thread(held.enter_context, self._store.lease())
                found = self._other(await self._read(), old, older) if adopt else None
                if mine or found is not None:
                    yield found
                    return
            if token_file.now() > until:
                raise TokenFailed("another process asks for the token, and has not got it yet")
            await asyncio.sleep(self._poll * (0.75 + random.random() / 2))  # noqa: S311

    async def _ask(self, record: Record | None, *, full: bool) -> GrantedToken:
        """A token from the server; the caller holds the lease."""
        if self.options.grant_type == "client_credentials":
            return await self._authenticated(record, fallback=False)
        record = self._with_configured(record)
        again = self.options.grant_type == "password"
        if again and record is not None and not self._ours(record):
            record = None
        usable = (
            record is not None and record.refresh and (not record.sent or record.rotates is False)
        )
        if record is None or not usable or (full and again):
            if not again:
                raise self._lost(record)
            return await self._authenticated(record, fallback=record is not None and not full)
        try:
            return await self._refreshed(record)
        except GrantRefused as error:
            if again:
                _LOG.info("the refresh token no longer works: %s", error)
                return await self._authenticated(record, fallback=True)
            raise TokenRefused(
                f"{error}: the refresh token does not work; {self._remedy()}", kind="refresh_token"
            ) from None

    def _with_configured(self, record: Record | None) -> Record | None:
        """The record to go on from; a configured refresh token that did not begin it begins a new chain."""
        written = self.options.refresh_token
        if written is None or self.options.grant_type != "refresh_token":
            return record
        first = secret.reveal(written)
        if record is not None and record.seed == _hash(first):
            return record
        return self._empty(first, record)

    def _empty(self, refresh: str, before: Record | None) -> Record:
        """A record without an access token, at the beginning of a chain of refresh tokens."""
        at = token_file.now()
        return Record(
            self.options.server, self.options.client_id or "", self.options.grant_type,
            "", 1.0, token_file.this_boot(), at, at,
            refresh=refresh, seed=_hash(refresh), rotates=before.rotates if before else None,
        )  # fmt: skip

    def _lost(self, record: Record | None) -> TokenRefused:
        why = (
            "a refresh token was sent and its answer is lost, so it may not be sent again"
            if record is not None and record.sent
            else "there is no refresh token"
        )
        return TokenRefused(f"{why}: {self._remedy()}", kind="refresh_token")

    def _remedy(self) -> str:
        """How a user brings a new refresh token; a configured one would come first in the next run."""
        if self.options.refresh_token is None:
            return "run `hpcbench auth login MODEL` with a new one"
        return (
            f"put a new one into {self.options.refresh_token}, then run `hpcbench auth login MODEL`"
        )

    async def _refreshed(self, record: Record) -> GrantedToken:
        """A token by the record's refresh token."""
        assert record.refresh is not None
        marked = replace(self._now(record), sent=True)
        await self._write(marked)
        try:
            return await self._request("refresh_token", marked, fallback=False)
        except _Odd:
            raise  # it was used, and nothing came for it
        except GrantRefused:
            # It is known not to work, so it is not lost.
            await self._write(replace(self._now(record), refresh=None, sent=False), before=marked)
            raise
        except (Unsent, TokenRefused, HpcbenchError):
            await self._write(replace(self._now(record), sent=False), before=marked)
            raise
        except _Busy as busy:
            await self._write(replace(self._now(record), sent=False), before=marked)
            raise busy.failure from None

    def _now(self, record: Record) -> Record:
        """A record as it is written now: other nodes count its token's age from the moment of writing."""
        token = None if self._store is None else self._store.token(record)
        at = token_file.now()
        if token is None:  # there is none, or its age is unknown
            return replace(record, access="", boot=token_file.this_boot(), since=at, written=at)
        return replace(record, boot=token_file.this_boot(), since=token.since, written=at)

    async def _authenticated(self, record: Record | None, *, fallback: bool) -> GrantedToken:
        """A token by the credential itself."""
        try:
            return await self._request("full_auth", record, fallback=fallback)
        except _Busy as busy:
            raise busy.failure from None

    async def _request(self, kind: Kind, record: Record | None, *, fallback: bool) -> GrantedToken:
        if self._endpoint is None:
            await self._discover(kind)
        assert self._endpoint is not None
        refresh = record.refresh if record is not None and kind == "refresh_token" else None
        since, reply = await self._send(self._endpoint, kind, refresh)
        if self._other_clock(reply):
            since, reply = await self._send(self._endpoint, kind, refresh)
        try:
            found = token_messages.read_answer(reply.status, reply.headers, reply.body, kind)
        except TokenRefused as error:
            raise error if reply.status >= 400 else _Odd(str(error), kind=kind) from None
        except TokenFailed as error:
            if reply.status in _NOT_PROCESSED:
                raise _Busy(error) from None
            raise
        keeps_refresh = self.options.grant_type != "client_credentials"
        rotates = record.rotates if record else None
        if kind == "refresh_token":
            rotates = found.refresh is not None and found.refresh != refresh
        answer = Record(
            self.options.server, self.options.client_id or "", self.options.grant_type,
            found.access, found.lifetime, token_file.this_boot(), since, token_file.now(),
            refresh=(found.refresh or refresh) if keeps_refresh else None,
            rotates=rotates, seed=record.seed if record else None, proof=self._proof,
        )  # fmt: skip
        before = record if kind == "refresh_token" else None
        try:
            await self._write(answer, before)
        except OSError as error:
            if before is not None and self.options.grant_type == "refresh_token":
                self._unsaved = answer, before
                raise
            _LOG.warning("a token is not kept for other processes: the file of tokens: %s", error)
        self._heard = token_file.this_boot(), since
        return GrantedToken(Token(found.access, since, found.lifetime), kind, fallback)

    async def _send(self, endpoint: str, kind: Kind, refresh: str | None) -> tuple[float, Reply]:
        """The moment before a request, and its answer."""
        asked = token_messages.request(self.options, endpoint, kind, refresh, self._ahead)
        since = token_file.now()
        try:
            return since, await self._transport.send("POST", endpoint, asked.headers, asked.body)
        except TokenFailed as error:
            error.kind = kind
            raise

    def _other_clock(self, reply: Reply) -> bool:
        """Whether a signed assertion was refused by a server whose clock differs; the next is dated by it."""
        there = retry_after.clock(reply.headers)
        if (
            self.options.method != "private_key_jwt"
            or there is None
            or not 400 <= reply.status < 500
            or b"invalid_client" not in reply.body  # so the refresh token was not used
        ):
            return False
        before, self._ahead = self._ahead, there - time.time()
        return abs(self._ahead - before) > CLOCKS_AGREE

    async def _discover(self, kind: Kind) -> None:
        try:
            self._endpoint, methods = await discover(
                self.options, self._transport, allow_http=self._allow_http
            )
        except TokenFailed as error:
            # The refresh token was not sent.
            raise (
                error if isinstance(error, TokenRefused) else Unsent(str(error), kind=kind)
            ) from None
        preset = self.options.client_auth is None and self.options.method == "client_secret_basic"
        others = methods is not None and "client_secret_basic" not in methods
        if preset and others and "client_secret_post" in (methods or ()):
            self.options = self.options.model_copy(update={"client_auth": "client_secret_post"})

    async def _read(self) -> Record | None:
        if self._store is None:
            return self._memory
        return await asyncio.to_thread(self._store.read)

    async def _write(self, record: Record, before: Record | None = None) -> None:
        """Write a record to the disk.

        Args:
            record: the new one.
            before: the marked record that it follows: if the file holds another one, our lease was taken over
                while we slept, and the file is the other process's.
        """
        if self._store is None:
            self._memory = record
            return
        await asyncio.to_thread(_replace, self._store, record, before)


def source_of(
    options: AuthOptions, *, allow_http: bool = False, say: Callable[[str], None]
) -> TokenServer:
    """The source of a credential, with the user's file; `say` gets why there is none.

    Raises:
        EnvironmentFault: a secret is missing, or the place for the file of refresh tokens.
    """
    for name in SECRETS:
        secret.reveal(getattr(options, name) or "")
    try:
        kept = Store(options.key)
    except (EnvironmentFault, OSError) as error:
        if options.grant_type == "refresh_token":
            what = "a refresh token may work only once, and there is no place for the file in which"
            raise EnvironmentFault(
                f"{what} all processes share its successor: {error}",
                remedy="set XDG_STATE_HOME to a folder of yours that all nodes see",
            ) from None
        say(
            f"each process asks for tokens of its own, since there is no place for their file: {error}"
        )
        kept = None
    return TokenServer(options, kept, allow_http=allow_http)


class _Odd(TokenRefused):
    """An answer of success without a token that can be used."""


class _Busy(Exception):
    """The server answered that it did nothing."""

    def __init__(self, failure: TokenFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


def _replace(kept: Store, record: Record, before: Record | None) -> None:
    if before is not None:
        found: Any = kept.read()
        if found is not None and found.refresh != before.refresh:
            return
    kept.write(record)


def _proof(options: AuthOptions) -> str:
    """Tells one set of secrets from another; who reads it learns none of them.

    Raises:
        EnvironmentFault: a secret is missing.
    """
    said = (options.client_secret, options.password, options.private_key)
    return _slow_hash(json.dumps([secret.reveal(one or "") for one in said]), options.key)


@functools.lru_cache(maxsize=8)
def _slow_hash(text: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt.encode(), HASH_ROUNDS).hex()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
