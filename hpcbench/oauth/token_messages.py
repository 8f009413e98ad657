"""Requests for tokens and their answers (RFC 6749, RFC 7523), as data: nothing is sent here.

oauthlib writes and reads the messages. Around it: a lifetime that is missing or absurd is replaced, errors
are sorted into those that pass and those that do not, and no text that leaves has a secret.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import secrets as random_text
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode

from hpcbench import retry_after, secret
from hpcbench.errors import EnvironmentFault
from hpcbench.oauth.keeper import Kind, TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions

ASSUMED_LIFETIME = 300.0
"""Lifetime of a token for which the server states none, seconds."""

SHORTEST_LIFETIME = 1.0
"""A shorter one is no lifetime: no request could use its token."""

LONGEST_LIFETIME = 30 * 86400.0
"""Longer ones are cut to this, seconds."""

RSA_BITS = 2048
"""Shortest key of RS256 (RFC 7518, section 3.3)."""

_ASSERTION_SECONDS = 300
_MOST_WORDS = 300
"""Characters of a server's words in an error."""
_PASSES = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
"""Errors of OAuth2 that pass."""


class GrantRefused(TokenRefused):
    """`invalid_grant`: the refresh token, or user and password, no longer work.

    A refused refresh token counts as one, too, if the server does not say why (glewlwyd: 400 without a text).
    """


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """An answer with a token."""

    access: str
    lifetime: float
    """Seconds."""
    refresh: str | None
    """None: the server sent none."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for a token."""

    headers: Mapping[str, str]
    body: str


def request(
    options: AuthOptions, endpoint: str, kind: Kind, refresh: str | None = None, ahead: float = 0.0
) -> TokenRequest:
    """The request for a token.

    Args:
        options: the credential.
        endpoint: the token server's address, for whom a signed assertion is.
        kind: `full_auth` or `refresh_token`.
        refresh: the refresh token of the latter.
        ahead: seconds that the server's clock is ahead of ours, as far as it is known.

    Raises:
        EnvironmentFault: a secret, or a package, is missing.
    """
    try:
        from oauthlib.oauth2.rfc6749.parameters import prepare_token_request
    except ImportError as error:
        raise EnvironmentFault(
            "OAuth2 needs the package oauthlib", remedy="pip install oauthlib"
        ) from error
    fields: dict[str, str] = {} if options.scope is None else {"scope": options.scope}
    repeated = [
        (name, one)
        for name, value in (("audience", options.audience), ("resource", options.resource))
        for one in ((value,) if isinstance(value, str) else value or ())
    ]
    grant = "client_credentials"
    if kind == "refresh_token":
        grant, fields["refresh_token"] = "refresh_token", refresh or ""
    elif options.grant_type == "password":
        grant = "password"
        fields |= {"username": options.username or "", "password": _revealed(options.password)}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    client, method = options.client_id or "", options.method
    if method == "client_secret_basic":
        pair = f"{quote_plus(client)}:{quote_plus(_revealed(options.client_secret))}"
        encoded = base64.b64encode(pair.encode()).decode()
        secret.remember(encoded)
        headers["Authorization"] = f"Basic {encoded}"
    else:
        fields["client_id"] = client
    if method == "client_secret_post":
        fields["client_secret"] = _revealed(options.client_secret)
    if method == "private_key_jwt":
        fields["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        fields["client_assertion"] = assertion(
            client, endpoint, _revealed(options.private_key), options.key_id, ahead
        )
    body: str = prepare_token_request(
        grant, body=urlencode(repeated), include_client_id="client_id" in fields, **fields
    )
    return TokenRequest(headers, body)


def read_answer(status: int, headers: Mapping[str, str], body: bytes, kind: Kind) -> TokenAnswer:
    """The token of an answer.

    Args:
        status: HTTP status.
        headers: of the answer; names in lower case.
        body: of the answer.
        kind: what was asked.

    Raises:
        GrantRefused: the refresh token, or user and password, no longer work.
        TokenRefused: the credential is refused.
        TokenFailed: the server cannot answer now.
    """
    from oauthlib.oauth2.rfc6749.errors import OAuth2Error
    from oauthlib.oauth2.rfc6749.parameters import parse_token_response

    text = body.decode("utf-8-sig", errors="replace")
    data: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(text)
    if headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        data = dict(parse_qsl(text))  # some servers never came to JSON
    if not isinstance(data, dict) or not isinstance(data.get("error", ""), str):
        raise _no_oauth(status, headers, text, kind)
    lifetime = data.pop("expires_in", None)
    data.pop("expires_at", None)
    if not isinstance(data.get("scope", ""), str):
        data.pop("scope")
    try:
        token = parse_token_response(json.dumps(data))
    except OAuth2Error as error:
        if "error" not in data:
            raise _no_oauth(status, headers, text, kind) from None
        raise _refused(status, headers, data, error.error, kind) from None
    if status >= 300:
        raise _no_oauth(status, headers, text, kind)
    access, refresh = token["access_token"], token.get("refresh_token")
    if (
        not isinstance(access, str)
        or not access
        or not access.isascii()
        or not access.isprintable()
    ):
        raise TokenRefused(
            "the token server's access_token is no token of printable text", kind=kind
        )
    secret.remember(access)
    if isinstance(refresh, str):
        secret.remember(refresh)
    sort = str(token.get("token_type") or "bearer")
    if sort.lower() != "bearer":
        raise TokenRefused(
            f"the token server gives tokens of type {words(sort)!r}, not 'bearer'", kind=kind
        )
    return TokenAnswer(
        access,
        _lifetime(lifetime) or _lifetime_inside(access) or ASSUMED_LIFETIME,
        refresh if isinstance(refresh, str) and refresh else None,
    )


def assertion(client: str, audience: str, pem: str, key_id: str | None, ahead: float = 0.0) -> str:
    """A JSON Web Token by which a client proves that it has a key (RFC 7523, section 2.2).

    Raises:
        EnvironmentFault: the key is none of the supported kinds, or the package for it is missing.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    except ImportError as error:
        raise EnvironmentFault(
            "`private_key_jwt` needs the package cryptography", remedy="pip install cryptography"
        ) from error
    try:
        # A variable that holds one line has its line ends as two characters; a PEM has no backslash.
        lines = pem.replace("\\r", "").replace("\\n", "\n")
        key = serialization.load_pem_private_key(lines.encode(), None)
    except (ValueError, TypeError) as error:
        raise EnvironmentFault(
            "`private_key` is no PEM of an unencrypted private key",
            remedy="write ${file:PATH} of such a file",
        ) from error
    except UnsupportedAlgorithm:
        key = None
    now = int(time.time() + ahead)
    claims = {
        "iss": client, "sub": client, "aud": audience, "jti": random_text.token_urlsafe(24),
        "iat": now, "exp": now + _ASSERTION_SECONDS,
    }  # fmt: skip
    curve = isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
    head = {"alg": "ES256" if curve else "RS256", "typ": "JWT"}
    if key_id is not None:
        head["kid"] = key_id
    signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(claims).encode())}"
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size < RSA_BITS:
            raise EnvironmentFault(
                f"`private_key` is an RSA key of {key.key_size} bits; RS256 wants {RSA_BITS} or more",
                remedy="use a longer key, or one of the curve P-256",
            )
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    elif curve:
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    else:
        raise EnvironmentFault(
            "`private_key` is neither RSA nor of the curve P-256", remedy="use such a key"
        )
    made = f"{signed}.{_base64(signature)}"
    secret.remember(made)
    return made


def _no_oauth(status: int, headers: Mapping[str, str], text: str, kind: Kind) -> TokenFailed:
    """The error for an answer that is none of OAuth2."""
    if status < 300:  # its text may be a token, in a form that we do not know
        return TokenRefused(f"the token server answers {status} without an OAuth2 token", kind=kind)
    where = headers.get("location", "").partition("?")[0]
    if 300 <= status < 400 and where:
        text = f"it redirects to {where}, and redirects are not followed"
    said = f"the token server answers {status}: {words(text) or 'nothing'}"
    if status >= 500 or status in (408, 425, 429):
        return TokenFailed(said, wait=retry_after.seconds(headers), kind=kind)
    unsaid = kind == "refresh_token" and status in (400, 401, 403)
    return (GrantRefused if unsaid else TokenRefused)(said, kind=kind)


def _refused(
    status: int, headers: Mapping[str, str], data: Mapping[str, Any], error: str, kind: Kind
) -> TokenFailed:
    said = data.get("error_description")
    message = f"the token server answers {status}: {words(data['error'])}"
    if isinstance(said, str) and said:
        message += f": {words(said)}"
    if error in _PASSES or status >= 500 or status in (408, 425, 429):
        return TokenFailed(message, wait=retry_after.seconds(headers), kind=kind)
    made = GrantRefused if data["error"] == "invalid_grant" else TokenRefused
    return made(message, kind=kind)


def words(text: str) -> str:
    """A server's words in one line, without secrets."""
    plain = secret.mask(" ".join(text.split()))
    clean = "".join(one if one.isprintable() else "?" for one in plain)
    return clean if len(clean) <= _MOST_WORDS else clean[:_MOST_WORDS] + "…"


def _lifetime(said: Any) -> float | None:
    """Seconds; None for what is no lifetime."""
    try:
        seconds = float(said)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(said, bool) or not math.isfinite(seconds) or seconds < SHORTEST_LIFETIME:
        return None
    return min(seconds, LONGEST_LIFETIME)


def _lifetime_inside(access: str) -> float | None:
    """`exp` minus `iat` of a JSON Web Token: both are the server's, so our clock does not matter."""
    try:
        part = access.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return _lifetime(float(claims["exp"]) - float(claims["iat"]))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None


def _revealed(reference: str | None) -> str:
    return secret.reveal(reference or "")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
