"""A token server in memory that rotates refresh tokens and takes a second use for theft."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from hpcbench.oauth.keeper import TokenFailed
from hpcbench.oauth.transport import Reply, Unsent


class FakeServer:
    """The transport and the server behind it."""

    def __init__(self, lifetime: Any = 100, *, rotates: bool = True) -> None:
        self.lifetime, self.rotates = lifetime, rotates
        self.asked: list[dict[str, str]] = []
        """The form of each request that arrived."""
        self.used_twice = 0
        self.refresh = "r0"
        """The only valid refresh token."""
        self.spent: set[str] = set()
        self.trouble = ""
        """`unsent`: unreachable; `lost`: it works, and the answer is lost; `odd`: its tokens
        are of another type; a status: it answers that."""
        self.takes = 0.02

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None
    ) -> Reply:
        if self.trouble == "unsent":
            raise Unsent("the token server cannot be reached")
        form = {name: values[0] for name, values in parse_qs(body or "").items()}
        self.asked.append(form)
        await asyncio.sleep(self.takes)
        if self.trouble.isdigit():
            return Reply(int(self.trouble), {}, b"")
        reply = self._answer(form)
        if self.trouble == "lost":
            raise TokenFailed("the token server broke off")
        return reply

    def _answer(self, form: Mapping[str, str]) -> Reply:
        given: dict[str, Any] = {
            "access_token": f"a{len(self.asked)}", "token_type": "Bearer",
        }  # fmt: skip
        if self.trouble == "odd":
            given["token_type"] = "mac"
        if self.lifetime is not None:
            given["expires_in"] = self.lifetime
        if form["grant_type"] == "refresh_token":
            sent = form["refresh_token"]
            if sent != self.refresh:
                self.used_twice += sent in self.spent
                return Reply(400, {}, b'{"error": "invalid_grant"}')
        if form["grant_type"] == "refresh_token" and not self.rotates:
            return Reply(200, {}, json.dumps(given).encode())
        if form["grant_type"] != "client_credentials":
            self.spent.add(self.refresh)
            self.refresh = f"r{len(self.asked)}"
            given["refresh_token"] = self.refresh
        return Reply(200, {}, json.dumps(given).encode())
