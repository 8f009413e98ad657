"""`auth` of `engine: remote`: which credential, at which token server. Secrets are references throughout."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hpcbench import secret

ClientAuth = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]

Texts = Annotated[tuple[str, ...], Field(min_length=1)]
"""Values of a parameter that a request has several times."""

SECRETS = ("client_secret", "password", "private_key", "refresh_token", "token")
"""Options that must be references."""


class AuthOptions(BaseModel):
    """Options of `engine_options.auth`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["jwt", "bearer", "none"] = "jwt"
    """`jwt`: tokens of a token server; `bearer`: one fixed token; `none`: requests have no token."""
    token: str | None = None
    """The fixed token of `bearer`; without it the one in `API_KEY`."""
    grant_type: Literal["client_credentials", "password", "refresh_token"] = "client_credentials"
    """How tokens are asked for."""
    token_url: str | None = None
    """Address of the token server."""
    issuer: str | None = None
    """Instead of `token_url`: the server whose metadata names it (OpenID discovery, RFC 8414)."""
    client_id: str | None = None
    """Our name there."""
    client_secret: str | None = None
    """Secret of `client_secret_basic` and `client_secret_post`."""
    client_auth: ClientAuth | None = None
    """How we prove who we are; default: `client_secret_basic` with a secret, `private_key_jwt` with a key."""
    private_key: str | None = None
    """Key of `private_key_jwt`, PEM: RSA (RS256) or the curve P-256 (ES256)."""
    key_id: str | None = None
    """Name of that key there (`kid`)."""
    username: str | None = None
    """User of the grant `password`."""
    password: str | None = None
    """Their password."""
    refresh_token: str | None = None
    """First refresh token of the grant `refresh_token`; without it, `hpcbench auth login` asks for it."""
    scope: str | None = None
    """Purposes of the token: words separated by spaces."""
    audience: str | Texts | None = None
    """Passed as `audience`; several are repeated."""
    resource: str | Texts | None = None
    """Passed as `resource` (RFC 8707); several are repeated."""
    ca_file: str | None = None
    """Authorities that the token server's certificate is checked by, PEM; default: the system's."""
    proxy: str | None = None
    """Proxy before the token server; default: `HTTPS_PROXY` and `NO_PROXY`."""
    timeout: float = Field(default=30, gt=0, le=600)
    """Longest wait for an answer of the token server, seconds."""

    @field_validator(*SECRETS)
    @classmethod
    def _a_reference(cls, value: str | None) -> str | None:
        if value is not None and not secret.REFERENCE.fullmatch(value):
            raise ValueError("write ${env:NAME} and export it, or ${file:PATH}")
        return value

    @field_validator("token_url", "issuer", "proxy")
    @classmethod
    def _a_plain_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not is_address(value):
            raise ValueError("write https://HOST/PATH")
        url = urlsplit(value)
        if url.username is not None or url.password is not None:
            raise ValueError("a URL cannot have user and password")
        if url.fragment:
            raise ValueError("an address here has no fragment (#…)")
        return value

    @field_validator("ca_file")
    @classmethod
    def _a_whole_path(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("/", "~/")):
            raise ValueError("write an absolute path, or ~/PATH: jobs run in other folders")
        return value

    @field_validator("issuer")
    @classmethod
    def _an_issuer(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).query:
            raise ValueError("an issuer has no query (?…)")
        return value

    @model_validator(mode="after")
    def _whole(self) -> AuthOptions:
        if self.type != "jwt":
            kept = {"type", "token"} if self.type == "bearer" else {"type"}
            if extra := sorted(self.model_fields_set - kept):
                raise ValueError(f"type '{self.type}' does not use '{extra[0]}'")
            return self
        for name, wanted in self._needed():
            if getattr(self, name) is None:
                raise ValueError(f"'{name}' is missing: {wanted}")
        if (self.token_url is None) == (self.issuer is None):
            raise ValueError("write either 'token_url' or 'issuer'")
        for name in ("username", "password"):
            if self.grant_type != "password" and getattr(self, name) is not None:
                raise ValueError(f"grant_type '{self.grant_type}' does not use '{name}'")
        if self.token is not None:
            raise ValueError("type 'jwt' does not use 'token': write 'type: bearer'")
        return self

    def _needed(self) -> list[tuple[str, str]]:
        needed = [("client_id", "our name at the token server")]
        if self.grant_type == "password":
            needed += [
                (name, "grant_type 'password' needs it") for name in ("username", "password")
            ]
        method = self.method
        if method in ("client_secret_basic", "client_secret_post"):
            needed.append(("client_secret", f"client_auth '{method}' needs it"))
        if method == "private_key_jwt":
            needed.append(("private_key", "client_auth 'private_key_jwt' needs it"))
        if self.grant_type == "client_credentials" and method == "none":
            needed.append(
                ("client_secret", "grant_type 'client_credentials' needs a secret or a key")
            )
        return needed

    @property
    def method(self) -> ClientAuth:
        """How we prove who we are."""
        if self.client_auth is not None:
            return self.client_auth
        if self.private_key is not None:
            return "private_key_jwt"
        return "client_secret_basic" if self.client_secret is not None else "none"

    @property
    def server(self) -> str:
        """The address that the user named."""
        return self.token_url or self.issuer or ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The references of its secrets."""
        return tuple(getattr(self, name) or "" for name in SECRETS)

    @property
    def key(self) -> str:
        """Names the credential in files; holds no secret.

        Two refresh tokens of one client begin two chains; a chain's file is its only record.
        """
        chain = self.refresh_token if self.grant_type == "refresh_token" else None
        named = (
            self.grant_type, self.server, self.client_id, self.username, self.scope, self.audience,
            self.resource, *([chain] if chain else []),
        )  # fmt: skip
        host = re.sub(r"[^a-z0-9.-]", "-", (urlsplit(self.server).hostname or "").lower())[:60]
        return f"{host}-{hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]}"


def is_address(text: str) -> bool:
    """Whether a text is the address of a server: a host over HTTP or HTTPS."""
    try:
        url = urlsplit(text)
        host = (url.hostname or "").encode("idna")
        return url.scheme in ("http", "https") and bool(host) and (url.port is None or url.port > 0)
    except ValueError:  # no number of a port, no IPv6 address, no name of a host
        return False


def in_the_clear(address: str) -> bool:
    """Whether an address is plain HTTP to another machine."""
    url = urlsplit(address)
    return url.scheme == "http" and not _loopback(url.hostname)


def _loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
