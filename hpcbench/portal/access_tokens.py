"""Who may come in: one-time codes, sessions of browsers, tokens of scripts.

Nothing secret is kept as it is: of every secret there is only its SHA-256, and they are compared in constant
time. Codes and sessions live in memory and end with the portal; tokens of scripts live in a file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter, ValidationError

from hpcbench import secret
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.base import Model
from hpcbench.portal.models.sessions import NewToken, Scope, TokenMade, TokenRow
from hpcbench.portal.runtime_dir import read_secret, write_secret

CODE_SECONDS = 60.0
"""How long a one-time code can be used."""

ACCESS_SECONDS = 15 * 60.0
"""How long a session goes on without being renewed."""

SESSION_SECONDS = 12 * 3600.0
"""How long a session can be renewed."""

REUSE_SECONDS = 10.0
"""Two tabs may renew at the same moment: so long the key before the last does not end the session."""

MOST_CODES = 16
"""Codes that wait to be used; the oldest ones end."""

MOST_SESSIONS = 32
"""Sessions at once; the oldest ones end."""

MOST_TOKENS = 100
"""Tokens of scripts."""

NEVER = 4_102_444_800.0
"""When the command line's token ends: in the year 2100."""

ALL: frozenset[Scope] = frozenset(get_args(Scope))
"""Everything."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks."""

    kind: Literal["session", "token", "owner", "plain"]
    """A browser, a script's token, the command line, a script-free page."""
    id: str
    """Of the session or token; no secret."""
    scopes: frozenset[Scope]
    """What it may do."""
    expires: float
    """Until when."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What a browser gets: both go into cookies."""

    access: str | None
    """Shown with every request; None: keep the one there is."""
    refresh: str | None
    """Shown once, to renew both; None: keep the one there is."""
    expires: float
    """When `access` ends."""
    ends: float
    """When the session ends for good."""


@dataclass
class _Session:
    ends: float
    plain: bool
    refresh: bytes = b""
    before: bytes = b""
    renewed: float = 0.0
    access: list[tuple[bytes, float]] = field(default_factory=list)


def new_secret() -> str:
    """256 bits."""
    return secrets.token_urlsafe(32)


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()


class Sessions:
    """One-time codes and what they are exchanged for; safe from any thread.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[str, _Session] = {}

    def code(self) -> str:
        """A fresh one-time code."""
        code = new_secret()
        with self._lock:
            self._forget()
            while len(self._codes) >= MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        return code

    def sign_in(self, code: str, *, plain: bool = False) -> Keys | None:
        """A new session for a code, which is used up; None: the code is wrong, old or used.

        Args:
            code: the code.
            plain: for script-free pages: nobody could renew it, so it lasts without, and opens only them.
        """
        digest = _digest(code)
        with self._lock:
            self._forget()
            found = [one for one in self._codes if hmac.compare_digest(one, digest)]
            if not found:
                return None
            del self._codes[found[0]]
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            session = _Session(self._clock() + SESSION_SECONDS, plain)
            identity = secrets.token_hex(8)
            self._sessions[identity] = session
            return self._renewed(identity, session)

    def renew(self, refresh: str) -> Keys | None:
        """New keys for the key that renews; None: it is wrong, or the session has ended.

        A key that was used before ends the session: somebody else has a copy. Only right after it was used
        another tab of the same browser may show it too; that gets no keys, as the browser has them already.
        """
        identity, _, _ = refresh.partition(".")
        digest = _digest(refresh)
        with self._lock:
            self._forget()
            session = self._sessions.get(identity)
            if session is None or session.plain:
                return None
            if hmac.compare_digest(session.refresh, digest):
                return self._renewed(identity, session)
            again = hmac.compare_digest(session.before, digest)
            if again and self._clock() - session.renewed < REUSE_SECONDS:
                return Keys(None, None, session.access[-1][1], session.ends)
            del self._sessions[identity]
            return None

    def who(self, access: str) -> Who | None:
        """Who shows this access key; None: nobody known."""
        identity, _, _ = access.partition(".")
        digest = _digest(access)
        with self._lock:
            session = self._sessions.get(identity)
            now = self._clock()
            if session is None or session.ends <= now:
                return None
            for known, expires in session.access:
                if hmac.compare_digest(known, digest) and now < expires:
                    if session.plain:
                        return Who("plain", identity, frozenset({"read"}), expires)
                    return Who("session", identity, ALL, expires)
        return None

    def lives(self, identity: str) -> bool:
        """Whether a session has neither ended nor been left."""
        with self._lock:
            session = self._sessions.get(identity)
            return session is not None and self._clock() < session.ends

    def leave(self, identity: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(identity, None)

    def _renewed(self, identity: str, session: _Session) -> Keys:
        now = self._clock()
        access, refresh = f"{identity}.{new_secret()}", f"{identity}.{new_secret()}"
        expires = session.ends if session.plain else min(now + ACCESS_SECONDS, session.ends)
        session.before, session.refresh, session.renewed = session.refresh, _digest(refresh), now
        # Requests under way still show the access key before.
        session.access = [*session.access[-1:], (_digest(access), expires)]
        return Keys(access, None if session.plain else refresh, expires, session.ends)

    def _forget(self) -> None:
        now = self._clock()
        self._codes = {code: end for code, end in self._codes.items() if now < end}
        self._sessions = {name: one for name, one in self._sessions.items() if now < one.ends}


class _Kept(Model):
    row: TokenRow
    sha256: str


_KEPT = TypeAdapter(tuple[_Kept, ...])


class Tokens:
    """Tokens of scripts, in a file that only the user may read; the command line writes it too.

    Args:
        path: the file.
        clock: seconds since the epoch.
    """

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, int, int] | None = None
        self._kept: tuple[_Kept, ...] = ()
        self._lock = threading.Lock()

    def rows(self) -> tuple[TokenRow, ...]:
        """Those that have not ended, the newest first."""
        now = self._clock()
        rows = [one.row for one in self._read() if now < one.row.expires]
        return tuple(sorted(rows, key=lambda row: row.created, reverse=True))

    def create(self, wanted: NewToken) -> TokenMade:
        """A new token.

        Raises:
            PortalFault: there are too many.
        """
        now = self._clock()
        row = TokenRow(
            id=secrets.token_hex(6),
            name="".join(one if one.isprintable() else " " for one in wanted.name).strip()
            or "token",
            scopes=tuple(scope for scope in get_args(Scope) if scope in wanted.scopes),
            created=now,
            expires=now + wanted.days * 86_400,
        )
        token = f"hpcb_{row.id}_{new_secret()}"
        with self._changing() as kept:
            if len(kept) >= MOST_TOKENS:
                raise PortalFault(409, "conflict", "too many tokens", "revoke some")
            kept.append(_Kept(row=row, sha256=_digest(token).hex()))
        return TokenMade(row=row, token=token)

    def revoke(self, identity: str) -> bool:
        """End a token; says whether there was one."""
        with self._changing() as kept:
            left = [one for one in kept if one.row.id != identity]
            found = len(left) < len(kept)
            kept[:] = left
        return found

    def who(self, token: str) -> Who | None:
        """Whose token it is; None: of none."""
        shown = _digest(token).hex()
        for one in self._read():
            if hmac.compare_digest(one.sha256, shown) and self._clock() < one.row.expires:
                return Who("token", one.row.id, frozenset(one.row.scopes), one.row.expires)
        return None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[_Kept]]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path.with_suffix(".lock"), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            now = self._clock()
            kept = [one for one in self._read() if now < one.row.expires]
            yield kept
            write_secret(
                self._path, json.dumps([one.model_dump() for one in kept], indent=2) + "\n"
            )
        finally:
            os.close(descriptor)

    def _read(self) -> tuple[_Kept, ...]:
        with self._lock:
            try:
                found = self._path.lstat()
            except FileNotFoundError:
                self._seen, self._kept = None, ()
                return ()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                try:
                    self._kept = _KEPT.validate_json(read_secret(self._path) or "[]")
                except ValidationError:
                    self._kept = ()  # nobody comes in by a file that cannot be understood
                self._seen = seen
            return self._kept


class Backoff:
    """Waits that grow with failures, for each one who fails. Nothing but time takes a failure back: whoever
    may come in himself could else try as many secrets of others as he likes.

    Args:
        clock: seconds, from anywhere.
    """

    FREE = 5
    """Failures that cost nothing."""
    LONGEST = 30.0
    """The longest wait, seconds."""
    FORGIVEN = 600.0
    """So long a failure counts, seconds."""
    MOST = 30
    """Failures that are kept of each, the newest."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def wait(self, one: str) -> float:
        """How long somebody has to wait before trying again, seconds."""
        now = self._clock()
        times = [at for at in self._failed.get(one, ()) if now - at <= self.FORGIVEN]
        if len(times) < self.FREE:
            return 0.0
        pause = min(0.5 * 2.0 ** (len(times) - self.FREE), self.LONGEST)
        return max(0.0, times[-1] + pause - now)

    def failed(self, one: str) -> None:
        """Somebody showed something wrong."""
        now = self._clock()
        old = [name for name, times in self._failed.items() if now - times[-1] > self.FORGIVEN]
        for name in old:
            del self._failed[name]
        while len(self._failed) > 1000:
            del self._failed[min(self._failed, key=lambda name: self._failed[name][-1])]
        self._failed.setdefault(one, deque(maxlen=self.MOST)).append(now)


@dataclass
class Desk:
    """Everything that lets somebody in."""

    owner: str
    """What the command line shows: the content of the token file."""
    tokens: Tokens
    """Of scripts."""
    sessions: Sessions = field(default_factory=Sessions)
    """Of browsers."""
    backoff: Backoff = field(default_factory=Backoff)
    """Waits after failures."""
    instance: str = field(default_factory=lambda: secrets.token_hex(4))
    """Names this start of the portal; no secret."""

    @property
    def access_cookie(self) -> str:
        """Name of the cookie with the access key."""
        return f"hpcbench-{self.instance}"

    @property
    def refresh_cookie(self) -> str:
        """Name of the cookie with the key that renews."""
        return f"hpcbench-{self.instance}-renew"

    @property
    def plain_cookie(self) -> str:
        """Name of the cookie of the script-free pages."""
        return f"hpcbench-{self.instance}-plain"

    def bearer(self, token: str) -> Who | None:
        """Who shows this token; None: nobody known."""
        if hmac.compare_digest(_digest(self.owner), _digest(token)):
            return Who("owner", "owner", ALL, NEVER)
        return self.tokens.who(token)

    def still(self, who: Who) -> bool:
        """Whether somebody who came in is still welcome; asked while a stream lasts."""
        if who.kind in {"session", "plain"}:
            return self.sessions.lives(who.id)
        if who.kind == "token":
            return any(row.id == who.id for row in self.tokens.rows())
        return True


def owner_token(path: Path, *, keep: bool) -> str:
    """The token of the command line: a new one in its file, or with `keep` the one that is there."""
    token = (read_secret(path) or "").strip() if keep else ""
    if len(token) < 43:
        token = new_secret()
        write_secret(path, token + "\n")
    secret.remember(token)
    return token
