"""A model on another machine: any OpenAI-compatible endpoint, so that it appears in the same table.

The child process is a relay on the engine's socket (hpcbench.engines.relay). The endpoint's key comes from
`API_KEY` in the model definition's `env`, or a token server gives tokens (`auth`). Secrets are references
that the relay itself resolves: no argument list, file or log contains one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hpcbench.engines.auto_concurrency import ELSEWHERE
from hpcbench.errors import Problem, UserError
from hpcbench.oauth.options import AuthOptions, in_the_clear
from hpcbench.plugins import API, Command, EngineSpec, check_options

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class RemoteOptions(BaseModel):
    """Options of `engine_options`."""

    model_config = ConfigDict(extra="forbid")

    base_url: str
    """Address below which `/chat/completions` is, e.g. `https://api.example.com/v1`."""
    model: str = Field(min_length=1)
    """The model's name there."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Sent with every request; no secrets."""
    timeout: float = Field(default=600, gt=0)
    """Longest silence of the endpoint, seconds."""
    allow_http: bool = False
    """Whether images, answers and key may cross a network in the clear."""
    strict: bool = True
    """Whether what hpcbench adds to requests beyond OpenAI's API is left out again."""
    auth: AuthOptions | None = None
    """How requests prove who we are; default: the fixed key in `API_KEY`."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The endpoint's name of the limit of an answer's tokens."""

    @field_validator("base_url")
    @classmethod
    def _a_plain_address(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("write https://HOST/v1")
        if url.username is not None or url.password is not None:
            raise ValueError(
                "a URL cannot have user and password: set the key as `API_KEY` in the model's `env`"
            )
        if url.query or url.fragment:
            raise ValueError("give only scheme, host and path")
        return value.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if _SECRET_HEADER.search(name):
                raise ValueError(
                    f"{name} looks like a secret: set the key as `API_KEY` in the model's `env`"
                )
            if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not text.isprintable():
                raise ValueError(f"{name!r} is not a valid header")
        return value


class RemoteEngine:
    """Relays requests to an endpoint elsewhere."""

    api: ClassVar[int] = API
    weights: ClassVar[bool] = False
    """It serves no folder of weights."""
    Options: ClassVar[type[RemoteOptions]] = RemoteOptions
    packages: ClassVar[tuple[str, ...]] = ("aiohttp",)
    """Distributions whose versions are recorded."""
    generation: ClassVar[frozenset[str]] = frozenset(
        {
            "frequency_penalty", "logit_bias", "min_p", "presence_penalty", "reasoning_effort",
            "repetition_penalty", "response_format", "service_tier", "top_k", "user", "verbosity",
        }
    )  # fmt: skip
    """Settings of OpenAI's API and the most common others; an endpoint refuses an unknown one."""

    def at_once(self, options: Mapping[str, Any], gpus: int) -> int:
        """Most requests in flight under `concurrency: auto`; workers search for the best number up to it."""
        return ELSEWHERE

    def launch_command(self, spec: EngineSpec) -> Command:
        """The relay's command line.

        Raises:
            UserError: an option is wrong, or a feature needs weights on this machine.
        """
        if problems := list(_problems(spec)):
            raise UserError(*problems)
        argv = [sys.executable, "-m", "hpcbench.engines.relay", "--uds", spec.socket]
        argv += ["--name", spec.model_name, "--options", json.dumps(dict(spec.options))]
        return Command(argv)


def _problems(spec: EngineSpec) -> Iterator[Problem]:
    wrong = check_options(RemoteEngine, spec.options)
    for _, message in wrong:
        yield Problem(message)
    for name in () if wrong else _in_the_clear(spec.options):
        what = "the key" if name == "base_url" else "secrets"
        yield Problem(
            f"option '{name}': http:// would send {what} unencrypted",
            remedy="write https://, or set `allow_http: true`",
        )
    if spec.gpus:
        yield Problem("a remote model needs no GPU", remedy="set the model's 'gpus' to 0")
    if spec.chat_template is not None:
        yield Problem(
            "a remote model has its own chat template", remedy="leave 'chat_template' out"
        )
    if spec.dtype != "auto":
        yield Problem("a remote model has its own dtype", remedy="leave 'dtype' out")


def _in_the_clear(options: Mapping[str, Any]) -> Iterator[str]:
    """Options whose address is plain HTTP to another machine."""
    if options.get("allow_http"):
        return
    if in_the_clear(options["base_url"]):
        yield "base_url"
    for name in ("token_url", "issuer"):
        if in_the_clear((options.get("auth") or {}).get(name) or ""):
            yield f"auth.{name}"
