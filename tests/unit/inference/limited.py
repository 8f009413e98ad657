"""A gateway of known limits."""

from __future__ import annotations

import asyncio
import math
import time
from email.utils import formatdate
from typing import Literal

from aiohttp import web

Says = Literal["all", "resets", "seconds", "milliseconds", "date", "nothing"]
WINDOW = 0.4


class Gateway:
    """A gateway with limits of requests and tokens, by OpenAI's published headers.

    Args:
        limit: requests in a window, or the size of a bucket that fills in a window.
        says: `all`: what remains, and `Retry-After`; `resets`: only what remains; else only how long to wait.
        windowed: whether all comes back at once.
        tokens: limit of tokens; each request takes 10.
    """

    def __init__(
        self, limit: int, says: Says = "all", *, windowed: bool = False, tokens: int | None = None
    ) -> None:
        self.limit, self.says, self.windowed, self.token_limit = limit, says, windowed, tokens
        self.left, self.tokens_left = float(limit), float(tokens or 0)
        self.since = time.monotonic()
        self.refusal = 429
        """Status of refusals."""
        self.refused = self.answered = 0
        self.moments: list[float] = []
        """When requests came, refused ones included."""

    def _refill(self) -> None:
        moment = time.monotonic()
        share = (moment - self.since) / WINDOW
        if self.windowed and share < 1:
            return
        share = 1.0 if self.windowed else share
        self.left = min(self.limit, self.left + self.limit * share)
        self.tokens_left = min(
            self.token_limit or 0, self.tokens_left + (self.token_limit or 0) * share
        )
        self.since = moment

    def _reset(self, left: float, limit: float) -> float:
        if self.windowed:
            return WINDOW - (time.monotonic() - self.since)
        return (limit - left) / limit * WINDOW

    def _headers(self, *, refused: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.says in ("all", "resets"):
            kinds = [("requests", self.left, self.limit)]
            if self.token_limit:
                kinds.append(("tokens", self.tokens_left, self.token_limit))
            for kind, left, limit in kinds:
                found |= {
                    f"x-ratelimit-limit-{kind}": str(limit),
                    f"x-ratelimit-remaining-{kind}": str(int(left)),
                    f"x-ratelimit-reset-{kind}": f"{self._reset(left, limit) * 1000:.0f}ms",
                }
        wait = self._reset(self.left, self.limit) if self.windowed else WINDOW / self.limit
        if refused and self.says == "date":
            found["Retry-After"] = formatdate(time.time() + 1, usegmt=True)
        elif refused and self.says in ("all", "seconds"):
            found["Retry-After"] = str(math.ceil(wait))
        elif refused and self.says == "milliseconds":
            found["retry-after-ms"] = f"{wait * 1000:.0f}"
        return found

    async def chat(self, asked: web.Request) -> web.Response:
        await asked.read()
        self.moments.append(time.monotonic())
        self._refill()
        if self.left < 1 or (self.token_limit and self.tokens_left < 10):
            self.refused += 1
            error = {"message": "Rate limit reached", "code": "rate_limit_exceeded"}
            return web.json_response(
                {"error": error}, status=self.refusal, headers=self._headers(refused=True)
            )
        self.left, self.tokens_left = self.left - 1, self.tokens_left - 10
        self.answered += 1
        headers = self._headers(refused=False)
        await asyncio.sleep(0.01)
        return web.json_response(
            {
                "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 8, "completion_tokens": 2},
            },
            headers=headers,
        )
