"""The signed-in client, and tokens for scripts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpcbench.portal.models.base import Model


class Session(Model):
    """The current session."""

    user: str
    """Account under which the portal runs."""
    host: str
    """Host of the portal."""
    version: str
    """Version of hpcbench."""
    home: str
    """Path of the home (`HPCBENCH_HOME`)."""
    mode: str
    """RUN_MODE: prod or dev."""
    may_edit: bool
    """Whether the portal may write plans and definitions (`--allow-edit`)."""
    may_submit: bool
    """Whether the portal may submit plans (`--allow-submit`)."""
    expires: float
    """Time at which the session ends without a renewal, seconds since the epoch."""
    tunnel: str
    """The `ssh -L` line, for the case that the tunnel is closed."""
    news: int
    """Number of the newest live message. A client that reads all later ones misses no change."""


class SignIn(Model):
    """Sign-in of a browser."""

    code: str = Field(max_length=200)
    """One-time code: the text after `#t=` in the link."""


class SignInCode(Model):
    """A new one-time code, for `hpcbench portal url`."""

    code: str
    """The code."""
    seconds: float
    """Time for which the code is valid, seconds."""


Scope = Literal["read", "plan-edit", "submit"]
"""Permission of a token; `plan-edit` also covers the user's own notes."""


class TokenRow(Model):
    """A user's token for scripts, without its secret."""

    id: str
    """Id of the token, no secret."""
    name: str
    """Purpose, in the user's words."""
    scopes: tuple[Scope, ...]
    """Permissions of the token."""
    created: float
    """Time of creation, seconds since the epoch."""
    expires: float
    """Time of expiry, seconds since the epoch."""


class NewToken(Model):
    """A request for a new token."""

    name: str = Field(min_length=1, max_length=100)
    """Purpose of the token."""
    scopes: tuple[Scope, ...] = Field(default=("read",), min_length=1)
    """Permissions of the token."""
    days: float = Field(default=30.0, gt=0, le=366)
    """Days until it expires."""


class TokenMade(Model):
    """A new token; the portal shows its secret only once."""

    row: TokenRow
    """The row of the list of tokens."""
    token: str
    """The secret, for `Authorization: Bearer …`."""
