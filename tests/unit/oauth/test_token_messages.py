"""Requests for tokens as data, and what is read out of answers, honest or not."""

from __future__ import annotations

import base64
import html
import json
import subprocess
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcbench.errors import EnvironmentFault
from hpcbench.oauth import token_messages
from hpcbench.oauth.keeper import TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions

URL = "https://gateway.example/oauth/token"


def options(**more: Any) -> AuthOptions:
    chosen = {
        "token_url": URL,
        "client_id": "bench",
        "client_secret": "${env:OAUTH_SECRET}",
        **more,
    }
    return AuthOptions(**{name: value for name, value in chosen.items() if value is not None})


def form(asked: token_messages.TokenRequest) -> dict[str, str]:
    return {name: value[0] for name, value in parse_qs(asked.body, strict_parsing=True).items()}


def grant(expires_in: Any, access: str = "abc") -> bytes:
    return json.dumps(
        {"access_token": access, "token_type": "Bearer", "expires_in": expires_in}
    ).encode()


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTH_SECRET", "s3cr:et& ü")
    monkeypatch.setenv("OAUTH_PASSWORD", "pass word+1")


def test_basic_credentials_are_encoded_as_the_rfc_wants() -> None:
    asked = token_messages.request(
        options(scope="a b", audience="api", resource="urn:x"), URL, "full_auth"
    )
    pair = base64.b64decode(asked.headers["Authorization"].removeprefix("Basic ")).decode()
    assert pair == "bench:s3cr%3Aet%26+%C3%BC"
    assert form(asked) == {
        "grant_type": "client_credentials", "scope": "a b", "audience": "api", "resource": "urn:x",
    }  # fmt: skip


def test_several_resources_and_audiences_are_repeated_parameters() -> None:
    """RFC 8707, section 2."""
    both = options(resource=["https://a/?x=1&y", "urn:b"], audience=["api", "b c"])
    asked = parse_qs(token_messages.request(both, URL, "full_auth").body, strict_parsing=True)
    assert asked == {
        "grant_type": ["client_credentials"], "resource": ["https://a/?x=1&y", "urn:b"],
        "audience": ["api", "b c"],
    }  # fmt: skip
    assert options(resource="urn:b").key != both.key != options(resource=["urn:b", "urn:c"]).key
    with pytest.raises(ValidationError):
        options(resource=[])


@pytest.mark.parametrize("change", [("\n", "\\n"), ("\n", "\r\n"), ("\n", "\\r\\n"), ("", "")])
def test_a_key_may_come_from_a_variable_that_holds_one_line(
    change: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI systems and `.env` files write line ends as two characters."""
    make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
    pem = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    monkeypatch.setenv("OAUTH_KEY", pem.replace(*change) if change[0] else pem)
    chosen = options(client_secret=None, private_key="${env:OAUTH_KEY}")
    asked = form(token_messages.request(chosen, URL, "full_auth"))
    assert asked["client_assertion"].count(".") == 2
    assert (asked["client_id"], "client_secret" in asked) == ("bench", False)


def test_a_secret_in_the_form_and_a_password() -> None:
    chosen = options(
        client_auth="client_secret_post", grant_type="password", username="u",
        password="${env:OAUTH_PASSWORD}",
    )  # fmt: skip
    asked = token_messages.request(chosen, URL, "full_auth")
    assert "Authorization" not in asked.headers
    assert form(asked) == {
        "grant_type": "password", "client_id": "bench", "client_secret": "s3cr:et& ü",
        "username": "u", "password": "pass word+1",
    }  # fmt: skip
    again = form(token_messages.request(chosen, URL, "refresh_token", "r1"))
    assert (again["grant_type"], again["refresh_token"]) == ("refresh_token", "r1")
    assert "password" not in again


@pytest.mark.parametrize("kind", ["rsa", "p256"])
def test_a_signed_assertion_is_verified_by_the_public_key(kind: str) -> None:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    key: Any = (
        rsa.generate_private_key(65537, 2048)
        if kind == "rsa"
        else ec.generate_private_key(ec.SECP256R1())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    made = token_messages.assertion("bench", URL, pem, "k1")
    signed, _, signature = made.rpartition(".")
    head, claims, raw = (
        base64.urlsafe_b64decode(part + "==") for part in (*signed.split("."), signature)
    )
    found = json.loads(claims)
    assert (found["iss"], found["sub"], found["aud"]) == ("bench", "bench", URL)
    assert 0 < found["exp"] - found["iat"] <= 300
    assert json.loads(head)["kid"] == "k1"
    if kind == "rsa":
        assert json.loads(head)["alg"] == "RS256"
        key.public_key().verify(raw, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        assert json.loads(head)["alg"] == "ES256"
        both = utils.encode_dss_signature(
            int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
        )
        key.public_key().verify(both, signed.encode(), ec.ECDSA(hashes.SHA256()))
    with pytest.raises(EnvironmentFault, match="private_key"):
        token_messages.assertion("bench", URL, "no key", None)


@pytest.mark.parametrize(
    ("said", "lifetime"),
    [
        (3600, 3600), ("3600", 3600), (2.5, 2.5), (None, 300), (0, 300), (-5, 300), ("soon", 300),
        (10**400, 300), (1e300, 30 * 86400), (True, 300), ([1], 300), ({}, 300), (1e-6, 300), (0.99, 300),
        (1, 1),
    ],
)  # fmt: skip
def test_a_lifetime_that_is_missing_or_absurd_is_replaced(said: Any, lifetime: float) -> None:
    found = token_messages.read_answer(200, {}, grant(said), "full_auth")
    assert found.lifetime == lifetime


def test_an_answer_in_the_form_of_a_request_is_read_where_it_says_so() -> None:
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    body = b"access_token=abc&expires_in=60&token_type=bearer&refresh_token=r1"
    found = token_messages.read_answer(200, headers, body, "full_auth")
    assert (found.access, found.lifetime, found.refresh) == ("abc", 60, "r1")
    refused = b"error=invalid_client&error_description=no+such+client"
    with pytest.raises(TokenRefused, match="invalid_client: no such client"):
        token_messages.read_answer(400, headers, refused, "full_auth")


def test_a_mark_of_the_byte_order_before_an_answer_is_no_error() -> None:
    found = token_messages.read_answer(200, {}, b"\xef\xbb\xbf" + grant(60), "full_auth")
    assert (found.access, found.lifetime) == ("abc", 60)


@pytest.mark.parametrize("kind", ["p384", "ed25519", "dsa", "short", "public", "locked", "curve"])
def test_a_key_that_cannot_sign_is_refused_in_one_line(kind: str) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

    made: dict[str, Any] = {
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "dsa": lambda: dsa.generate_private_key(1024),
        "short": lambda: rsa.generate_private_key(65537, 1024),
    }
    how: Any = serialization.NoEncryption()
    if kind == "locked":
        how = serialization.BestAvailableEncryption(b"pw")
    form = serialization.Encoding.PEM
    if kind == "curve":  # cryptography does not know it
        make = ["openssl", "ecparam", "-name", "sect163k1", "-genkey", "-noout"]
        pem = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    elif kind == "public":
        public = rsa.generate_private_key(65537, 2048).public_key()
        pem = public.public_bytes(form, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    else:
        key = made.get(kind, made["p384"])()
        pem = key.private_bytes(form, serialization.PrivateFormat.PKCS8, how).decode()
    with pytest.raises(EnvironmentFault, match="private_key") as found:
        token_messages.assertion("bench", URL, pem, None)
    assert str(found.value).isprintable()


def test_a_tokens_own_times_say_how_long_it_lives_whatever_our_clock_shows() -> None:
    claims = (
        base64.urlsafe_b64encode(json.dumps({"iat": 5000, "exp": 5900}).encode())
        .decode()
        .rstrip("=")
    )
    assert (
        token_messages.read_answer(200, {}, grant(None, f"e30.{claims}.sig"), "full_auth").lifetime
        == 900
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": "invalid_client"}, TokenRefused),
        (400, {"error": "invalid_scope"}, TokenRefused),
        (400, {"error": "invalid_grant"}, token_messages.GrantRefused),
        (400, {"error": "temporarily_unavailable"}, TokenFailed),
        (503, {"error": "x"}, TokenFailed),
        (429, {"error": "slow_down"}, TokenFailed),
        (404, "not here", TokenRefused),
        (502, "<html>bad gateway</html>", TokenFailed),
        (302, "", TokenRefused),
        (200, {"token": "topsecret"}, TokenRefused),
        (200, {"access_token": 5}, TokenRefused),
        (200, {"access_token": "a\r\nb"}, TokenRefused),
        (200, {"access_token": "abc", "token_type": "mac"}, TokenRefused),
    ],
)
def test_errors_are_sorted_into_those_that_pass_and_those_that_do_not(
    status: int, body: Any, kind: type[TokenFailed]
) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(TokenFailed) as found:
        token_messages.read_answer(status, {"retry-after": "7"}, data.encode(), "full_auth")
    assert type(found.value) is kind
    assert "topsecret" not in str(found.value)
    assert found.value.wait == (7 if kind is TokenFailed else None)


def test_a_redirect_is_not_followed_and_says_where_it_leads() -> None:
    where = "https://login.example/start?state=abc"
    with pytest.raises(
        TokenRefused, match="answers 302: it redirects to https://login.example/start,"
    ) as found:
        token_messages.read_answer(302, {"location": where}, b"<html>moved</html>", "full_auth")  # fmt: skip
    assert "redirects are not followed" in str(found.value)
    assert "abc" not in str(found.value)


def test_a_refresh_token_that_is_refused_without_a_word_no_longer_works() -> None:
    with pytest.raises(token_messages.GrantRefused, match="answers 400: nothing"):
        token_messages.read_answer(400, {}, b"", "refresh_token")
    with pytest.raises(TokenRefused) as found:
        token_messages.read_answer(400, {}, b"", "full_auth")
    assert type(found.value) is TokenRefused


def test_a_server_that_repeats_secrets_gets_them_masked() -> None:
    asked = token_messages.request(options(), URL, "full_auth")
    said = f"unknown s3cr:et& ü in {asked.headers['Authorization']}"
    body = json.dumps({"error": "invalid_client", "error_description": said}).encode()
    with pytest.raises(TokenRefused, match="unknown") as found:
        token_messages.read_answer(401, {}, body, "full_auth")
    assert "s3cr" not in str(found.value)
    assert asked.headers["Authorization"].removeprefix("Basic ") not in str(found.value)


@pytest.mark.parametrize("status", [400, 502])
def test_a_server_that_repeats_a_secret_in_another_form_gets_it_masked(status: int) -> None:
    token_messages.request(options(), URL, "full_auth")
    said = "s3cr:et& ü"
    pair = base64.b64encode(f"bench:{said}".encode()).decode()
    for form in (quote(said), quote_plus(said).lower(), html.escape(said), pair, json.dumps(said)):
        for body in (json.dumps({"error": "x", "error_description": form}), f"<p>{form}</p>"):
            with pytest.raises(TokenFailed) as found:
                token_messages.read_answer(status, {}, body.encode(), "full_auth")
            assert "***" in str(found.value), form
            assert "s3cr" not in str(found.value)


FIELDS = (
    "access_token", "token_type", "expires_in", "scope", "error", "refresh_token", "expires_at",
)  # fmt: skip
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
objects = st.dictionaries(st.sampled_from(FIELDS), st.recursive(plain, st.lists, max_leaves=3))


@pytest.mark.long
@given(
    st.integers(200, 599),
    st.binary(max_size=200) | objects.map(lambda data: json.dumps(data).encode()),
    st.text(max_size=20),
)
def test_any_answer_gives_a_token_or_an_error_of_ours_in_one_line(
    status: int, body: bytes, wait: str
) -> None:
    said = ""
    try:
        assert (
            token_messages.read_answer(status, {"retry-after": wait}, body, "full_auth").lifetime
            > 0
        )
    except TokenFailed as error:
        said = str(error)
    assert said.isprintable()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"client_secret": "plain"}, "write ${env:NAME}"),
        ({"client_id": None}, "'client_id' is missing"),
        ({"client_secret": None}, "needs a secret or a key"),
        ({"token_url": None}, "either 'token_url' or 'issuer'"),
        ({"issuer": "https://x"}, "either 'token_url' or 'issuer'"),
        ({"grant_type": "password"}, "'username' is missing"),
        ({"username": "u"}, "does not use 'username'"),
        ({"client_auth": "private_key_jwt"}, "'private_key' is missing"),
        ({"token_url": None, "issuer": "https://x/a?b=c"}, "an issuer has no query"),
        ({"token_url": "https://u:pw@x/token"}, "cannot have user and password"),
        ({"token_url": "gateway/token"}, "write https://HOST/PATH"),
        ({"token_url": "https://a..b/token"}, "write https://HOST/PATH"),
        ({"token_url": f"https://{'a' * 70}.example/token"}, "write https://HOST/PATH"),
        ({"token_url": "https://x:99999/token"}, "write https://HOST/PATH"),
        ({"token_url": "https://[x/token"}, "write https://HOST/PATH"),
        ({"type": "bearer"}, "type 'bearer' does not use 'client_id'"),
        ({"grant": "password"}, "Extra inputs"),
        ({"ca_file": "certificates/ours.pem"}, "write an absolute path, or ~/PATH"),
    ],
)
def test_options_that_cannot_work_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as found:
        options(**change)
    assert said in str(found.value)
    assert "plain" not in str(found.value)


def test_the_name_of_a_credential_has_no_secret_and_differs_by_what_the_token_is_for() -> None:
    assert options().key == options(client_secret="${env:OTHER}").key
    assert options().key != options(scope="inference").key
    assert options().key.startswith("gateway.example-")
