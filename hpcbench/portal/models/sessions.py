"""Who is signed in, and tokens for scripts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpcbench.portal.models.base import Model


class Session(Model):
    """Who is signed in where."""

    user: str
    """Name of the account the portal runs as."""
    host: str
    """Host it runs on."""
    version: str
    """Of hpcbench."""
    home: str
    """Folder of the experiments."""
    mode: str
    """RUN_MODE: prod or dev."""
    may_edit: bool
    """Whether plans can be written (`--allow-edit`)."""
    may_submit: bool
    """Whether plans can be submitted (`--allow-submit`)."""
    expires: float
    """When the session has to be renewed."""
    tunnel: str
    """The `ssh -L` line, to be shown where the tunnel has died."""


class SignIn(Model):
    """How a browser signs in."""

    code: str = Field(max_length=200)
    """A one-time code: what follows `#t=` in the link."""


class SignInCode(Model):
    """A fresh one-time code, for `hpcbench portal url`."""

    code: str
    """The code."""
    seconds: float
    """How long it can be used."""


Scope = Literal["read", "plan-edit", "submit"]
"""What a token is good for; `plan-edit` is for the user's own notes too."""


class TokenRow(Model):
    """A token of the user's for scripts; what it says itself is known to nobody but its holder."""

    id: str
    """Its id, which is no secret."""
    name: str
    """What it is for, in the user's words."""
    scopes: tuple[Scope, ...]
    """What it is good for."""
    created: float
    """When it was made."""
    expires: float
    """When it ends."""


class NewToken(Model):
    """A token to be made."""

    name: str = Field(min_length=1, max_length=100)
    """What it is for."""
    scopes: tuple[Scope, ...] = Field(default=("read",), min_length=1)
    """What it shall be good for."""
    days: float = Field(default=30.0, gt=0, le=366)
    """How long."""


class TokenMade(Model):
    """A new token; it is shown this once."""

    row: TokenRow
    """As in the list."""
    token: str
    """For `Authorization: Bearer …`."""
