"""Access to the portal: one-time codes, sessions of browsers, tokens of scripts.

The portal keeps only the SHA-256 of every secret; comparisons take constant time. Codes and sessions are in
memory and end with the portal; tokens of scripts are in a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
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
from hpcbench.files.atomic import write_private
from hpcbench.files.flock import locked
from hpcbench.files.private import read_secret
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.base import Model
from hpcbench.portal.models.sessions import NewToken, Scope, TokenMade, TokenRow

CODE_SECONDS = 60.0
"""How long a one-time code can be used."""

ACCESS_SECONDS = 15 * 60.0
"""How long a session lasts without a renewal."""

SESSION_SECONDS = 12 * 3600.0
"""How long a session can be renewed."""

REUSE_SECONDS = 10.0
"""Two tabs may renew at the same moment: for this time the previous key does not end the session."""

MOST_CODES = 16
"""Unused codes at once; beyond this number the oldest ones end."""

MOST_SESSIONS = 32
"""Sessions at once; beyond this number the oldest ones end."""

MOST_TOKENS = 100
"""Tokens of scripts at once."""

NEVER = 4_102_444_800.0
"""Time at which the command line's token ends: the year 2100."""

ALL: frozenset[Scope] = frozenset(get_args(Scope))
"""All scopes."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Requester:
    """The client of a request."""

    kind: Literal["session", "token", "owner", "plain"]
    """A browser, a script's token, the command line, a script-free page."""
    id: str
    """Id of the session or token; no secret."""
    scopes: frozenset[Scope]
    """Actions that the client may take."""
    expires: float
    """When this access ends."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The two keys of a browser; both go into cookies."""

    access: str | None
    """The browser sends this key with every request; None: the browser keeps its key."""
    refresh: str | None
    """The browser sends this key once, to renew both; None: the browser keeps its key."""
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
    """A random secret of 256 bits, as text."""
    return secrets.token_urlsafe(32)


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()


class Sessions:
    """One-time codes, and the sessions that they open; safe from any thread.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[str, _Session] = {}

    def code(self) -> str:
        """A new one-time code."""
        code = new_secret()
        with self._lock:
            self._forget()
            while len(self._codes) >= MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        return code

    def sign_in(self, code: str, *, plain: bool = False) -> Keys | None:
        """Open a session with a code, which ends the code; None: the code is wrong, old or used.

        Args:
            code: the code.
            plain: for script-free pages, which cannot renew a session: this one lasts without renewal and
                opens only those pages.
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
        """New keys in exchange for the renewal key; None: the key is wrong, or the session has ended.

        A key that was used before ends the session: another client has a copy. For `REUSE_SECONDS` after its
        use another tab of the same browser may send the key too; that tab gets no keys, because the browser
        already has them.
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

    def who(self, access: str) -> Requester | None:
        """The client with this access key; None: the key is unknown."""
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
                        return Requester("plain", identity, frozenset({"read"}), expires)
                    return Requester("session", identity, ALL, expires)
        return None

    def lives(self, identity: str) -> bool:
        """Whether a session has not expired and the user has not signed out."""
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
        # Requests in flight still carry the previous access key.
        session.access = [*session.access[-1:], (_digest(access), expires)]
        return Keys(access, None if session.plain else refresh, expires, session.ends)

    def _forget(self) -> None:
        now = self._clock()
        self._codes = {code: end for code, end in self._codes.items() if now < end}
        self._sessions = {name: one for name, one in self._sessions.items() if now < one.ends}


class _StoredToken(Model):
    row: TokenRow
    sha256: str


_STORED_TOKENS = TypeAdapter(tuple[_StoredToken, ...])


class Tokens:
    """Tokens of scripts, in a file that only the user may read; the command line writes this file too.

    Args:
        path: the file.
        clock: seconds since the epoch.
    """

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, int, int] | None = None
        self._kept: tuple[_StoredToken, ...] = ()
        self._lock = threading.Lock()

    def rows(self) -> tuple[TokenRow, ...]:
        """Tokens that have not ended, the newest first."""
        now = self._clock()
        rows = [one.row for one in self._read() if now < one.row.expires]
        return tuple(sorted(rows, key=lambda row: row.created, reverse=True))

    def create(self, wanted: NewToken) -> TokenMade:
        """A new token.

        Raises:
            PortalFault: there are too many tokens.
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
                raise PortalFault(
                    409, "conflict", f"there are {MOST_TOKENS} tokens already", "revoke a token"
                )
            kept.append(_StoredToken(row=row, sha256=_digest(token).hex()))
        return TokenMade(row=row, token=token)

    def revoke(self, identity: str) -> bool:
        """End a token; True if the token existed."""
        with self._changing() as kept:
            left = [one for one in kept if one.row.id != identity]
            found = len(left) < len(kept)
            kept[:] = left
        return found

    def who(self, token: str) -> Requester | None:
        """The client with this token; None: the token is unknown."""
        shown = _digest(token).hex()
        for one in self._read():
            if hmac.compare_digest(one.sha256, shown) and self._clock() < one.row.expires:
                return Requester("token", one.row.id, frozenset(one.row.scopes), one.row.expires)
        return None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[_StoredToken]]:
        with locked(self._path.with_suffix(".lock"), wait=True):
            now = self._clock()
            kept = [one for one in self._read() if now < one.row.expires]
            yield kept
            write_private(
                self._path, json.dumps([one.model_dump() for one in kept], indent=2) + "\n"
            )

    def _read(self) -> tuple[_StoredToken, ...]:
        with self._lock:
            try:
                found = self._path.lstat()
            except FileNotFoundError:
                self._seen, self._kept = None, ()
                return ()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                try:
                    self._kept = _STORED_TOKENS.validate_json(read_secret(self._path) or "[]")
                except ValidationError:
                    self._kept = ()  # an invalid file gives no access
                self._seen = seen
            return self._kept


class Backoff:
    """Waits that grow with the failures of each client. Only time removes a failure: otherwise a client with
    valid access could try any number of other clients' secrets.

    Args:
        clock: seconds, from anywhere.
    """

    FREE = 5
    """Failures without a wait."""
    LONGEST = 30.0
    """The longest wait, seconds."""
    FORGIVEN = 600.0
    """How long a failure counts, seconds."""
    MOST = 30
    """Failures kept for each client, the newest."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def wait(self, one: str) -> float:
        """How long a client has to wait before the next attempt, seconds."""
        now = self._clock()
        times = [at for at in self._failed.get(one, ()) if now - at <= self.FORGIVEN]
        if len(times) < self.FREE:
            return 0.0
        pause = min(0.5 * 2.0 ** (len(times) - self.FREE), self.LONGEST)
        return max(0.0, times[-1] + pause - now)

    def failed(self, one: str) -> None:
        """Count a failure: a client sent a wrong secret."""
        now = self._clock()
        old = [name for name, times in self._failed.items() if now - times[-1] > self.FORGIVEN]
        for name in old:
            del self._failed[name]
        while len(self._failed) > 1000:
            del self._failed[min(self._failed, key=lambda name: self._failed[name][-1])]
        self._failed.setdefault(one, deque(maxlen=self.MOST)).append(now)


@dataclass
class Desk:
    """All ways to sign in, and the waits after failures."""

    owner: str
    """The command line's token: the content of the token file."""
    tokens: Tokens
    """Tokens of scripts."""
    sessions: Sessions = field(default_factory=Sessions)
    """Sessions of browsers."""
    backoff: Backoff = field(default_factory=Backoff)
    """Waits after failures."""
    instance: str = field(default_factory=lambda: secrets.token_hex(4))
    """Identifies this start of the portal; no secret."""

    @property
    def access_cookie(self) -> str:
        """Name of the cookie with the access key."""
        return f"hpcbench-{self.instance}"

    @property
    def refresh_cookie(self) -> str:
        """Name of the cookie with the renewal key."""
        return f"hpcbench-{self.instance}-renew"

    @property
    def plain_cookie(self) -> str:
        """Name of the cookie of the script-free pages."""
        return f"hpcbench-{self.instance}-plain"

    def bearer(self, token: str) -> Requester | None:
        """The client with this token; None: the token is unknown."""
        if hmac.compare_digest(_digest(self.owner), _digest(token)):
            return Requester("owner", "owner", ALL, NEVER)
        return self.tokens.who(token)

    def still(self, who: Requester) -> bool:
        """Whether a client still has access; streams check this repeatedly."""
        if who.kind in {"session", "plain"}:
            return self.sessions.lives(who.id)
        if who.kind == "token":
            return any(row.id == who.id for row in self.tokens.rows())
        return True


def owner_token(path: Path, *, keep: bool) -> str:
    """The command line's token: a new one, written to its file; with `keep`, the one in the file."""
    token = (read_secret(path) or "").strip() if keep else ""
    if len(token) < 43:
        token = new_secret()
        write_private(path, token + "\n")
    secret.remember(token)
    return token
