"""The access token of a credential for programs without an event loop: storage and trackers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.oauth import token_file
from hpcbench.oauth.keeper import GrantedToken, TokenFailed, TokenRefused
from hpcbench.oauth.lifecycle import Lifecycle, any_jitter
from hpcbench.oauth.options import AuthOptions, in_the_clear

PATIENCE = 60.0
"""Longest wait for a token server that cannot answer, seconds."""

Answer = TypeVar("Answer")

_LOG = logging.getLogger("hpcbench.oauth")


def _of_a_server(options: AuthOptions) -> AuthOptions:
    if options.type == "bearer" and options.token is None:
        raise ValueError("'token' is missing: type 'bearer' needs it")
    if in_the_clear(options.server):
        raise ValueError("http:// would send secrets unencrypted: write https://")
    return options


ServerAuth = Annotated[AuthOptions, AfterValidator(_of_a_server)]
"""Option `auth` of a storage or tracker; it keeps its references (`plugins.revealed`)."""


class Bearer:
    """One credential's token, asked for when it is needed, and again before it ends; safe among threads.

    Raises:
        EnvironmentFault: a secret is missing.
    """

    def __init__(self, options: AuthOptions) -> None:
        self._options = options
        self._life = Lifecycle(any_jitter())
        self._lock = threading.Lock()
        self._failure = TokenFailed("the next one is asked for in a moment")
        """Why there is no token, where there is none."""
        self._beside: threading.Thread | None = None
        """Asks for a successor."""
        self._fixed = secret.reveal(options.token or "").strip()
        if options.type == "jwt":
            # Imported here: aiohttp is a slow import.
            from hpcbench.oauth.token_server import source_of

            self._source = source_of(options, say=_LOG.warning)

    def headers(self) -> Mapping[str, str]:
        """The header of a request now.

        Raises:
            EnvironmentFault: there is no token; says why, in the token server's words.
        """
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def token(self) -> str:
        """The token for a request now; empty: requests have none.

        Raises:
            EnvironmentFault: there is none.
        """
        if self._options.type != "jwt":
            return self._fixed
        with self._lock:
            until = token_file.now() + PATIENCE
            while True:
                access = self._life.usable(token_file.now())
                if token_file.now() >= self._life.due():
                    if access is not None and self._options.grant_type == "client_credentials":
                        self._renew_beside()
                    else:  # a refresh token is not left to a thread that may end with the process
                        self._renewed(*self._asked(*self._old()))
                        access = self._life.usable(token_file.now())
                if access is not None:
                    return access
                pause = max(0.0, self._life.due() - token_file.now())
                if isinstance(self._failure, TokenRefused) or token_file.now() + pause > until:
                    raise EnvironmentFault(f"no token of {self._options.server}: {self._failure}")
                time.sleep(pause)

    def asked(self, ask: Callable[[], Answer], unauthorised: Callable[[Answer], bool]) -> Answer:
        """A server's answer; if it is `unauthorised`, 401, and there is another token, the answer to that.

        Raises:
            EnvironmentFault: there is no token.
        """
        token = self.token()
        answer = ask()
        if unauthorised(answer):
            with self._lock:
                dropped = self._life.rejected(token, token_file.now())
                another = dropped or self._life.usable(token_file.now()) not in (token, None)
            if another:
                token = self.token()
                answer = ask()
        if not unauthorised(answer):
            with self._lock:
                self._life.accepted(token)
        return answer

    def _renew_beside(self) -> None:
        """Ask for the successor of a token that is still used; one request at a time."""
        if self._beside is not None and self._beside.is_alive():
            return
        old = self._old()

        def renew() -> None:
            found = self._asked(*old)
            with self._lock:
                self._renewed(*found)

        self._beside = threading.Thread(target=renew, name="token", daemon=True)
        self._beside.start()

    def _old(self) -> tuple[str | None, bool]:
        """The token that needs a successor, and whether a server rejected it."""
        rejected, token = self._life.replaced, self._life.token
        return rejected or (token.access if token else None), rejected is not None

    def _asked(self, old: str | None, full: bool) -> tuple[GrantedToken | None, TokenFailed]:
        """A token; else None, and why there is none."""

        async def asking() -> GrantedToken:
            return await self._source.obtain(old, full=full)

        try:
            # In a thread of its own: the caller's may have an event loop.
            with ThreadPoolExecutor(1) as pool:
                granted = pool.submit(asyncio.run, asking()).result()
        except TokenFailed as error:
            return None, error
        return granted, TokenFailed("the token had expired when it came")

    def _renewed(self, granted: GrantedToken | None, failure: TokenFailed) -> None:
        self._failure = failure
        if granted is None:
            self._life.failed(token_file.now(), failure.wait)
        else:
            self._life.granted(granted.token, token_file.now())
