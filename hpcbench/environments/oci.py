"""Image references, and the digest of a tag, read from the registry itself.

Uses little of the OCI distribution API: a HEAD for the manifest, with the login of `credentials` or,
if the registry requires one, a token (https://distribution.github.io/distribution/spec/auth/token/).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from email.message import Message
from typing import Any

from hpcbench.environments.credentials import Login, login_for
from hpcbench.errors import NO_NETWORK, EnvironmentFault, unreached
from hpcbench.schema.image_reference import Reference

TIMEOUT = 30.0
"""Longest wait for one response of a registry, seconds."""

_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of architectures in images, where they differ from the kernel's."""


def download_size(reference: Reference, insecure: Sequence[str]) -> int:
    """Bytes of a pinned image's layers for this machine, compressed as in the registry.

    Raises:
        EnvironmentFault: no image for this architecture, or the registry does not answer.
    """
    manifest = _manifest(reference, insecure)
    if "manifests" in manifest:
        machine = _MACHINES.get(platform.machine(), platform.machine())
        kinds = {one["digest"]: one.get("platform", {}) for one in manifest["manifests"]}
        fitting = [
            digest
            for digest, kind in kinds.items()
            if (kind.get("os"), kind.get("architecture")) == ("linux", machine)
        ]
        if not fitting:
            found = ", ".join(
                f"{kind.get('os')}/{kind.get('architecture')}" for kind in kinds.values()
            )
            raise EnvironmentFault(
                f"{reference} is not made for this machine, linux/{machine}, but for {found}",
                remedy="use another image, or a machine of that kind",
            )
        manifest = _manifest(replace(reference, digest=fitting[0]), insecure)
    return sum(layer["size"] for layer in manifest.get("layers", ()))


def _manifest(reference: Reference, insecure: Sequence[str]) -> Mapping[str, Any]:
    with _asked_of(reference):
        body = _authorised(_url(reference, reference.digest or "", insecure), "GET", reference)[1]
        found: Mapping[str, Any] = json.loads(body)
        return found


def resolve(reference: Reference, insecure: Sequence[str]) -> str:
    """The digest of a reference: of the manifest, or of the index of several platforms.

    A pinned reference costs no request, so it works without the registry.

    Raises:
        EnvironmentFault: the registry cannot be reached, does not know the image or requires a password.
    """
    if reference.digest is not None:
        return reference.digest
    url = _url(reference, reference.tag, insecure)
    with _asked_of(reference):
        headers, _ = _authorised(url, "HEAD", reference)
        digest = headers.get("Docker-Content-Digest")
        if digest is None:  # the header is optional in the specification
            _, body = _authorised(url, "GET", reference)
            digest = "sha256:" + hashlib.sha256(body).hexdigest()
        return digest


def _url(reference: Reference, name: str, insecure: Sequence[str]) -> str:
    # The host of Docker Hub's registry differs from its name in references.
    host = "registry-1.docker.io" if reference.host == "docker.io" else reference.host
    scheme = "http" if reference.host in insecure else "https"
    return f"{scheme}://{host}/v2/{reference.repository}/manifests/{name}"


@contextlib.contextmanager
def _asked_of(reference: Reference) -> Iterator[None]:
    """Turns a registry's refusals inside the block into readable errors."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            raise _refusal(reference, error.code) from error
        why = unreached(error)
        raise EnvironmentFault(
            f"cannot reach the registry of {reference}, {reference.host}: "
            f"{why or getattr(error, 'reason', error)}",
            remedy=f"{NO_NETWORK if why else 'check the network'}; for a registry without TLS, add "
            f"{reference.host} to container.insecure_registries in the site profile; "
            + (
                "without a way to it, `hpcbench images restore` brings the image from another machine"
                if reference.digest
                else "for an image in the cache, pin it by @sha256"
            ),
        ) from error


def _authorised(url: str, method: str, reference: Reference) -> tuple[Message, bytes]:
    """A request, repeated with a login or token if the registry asks for one."""
    try:
        return _request(url, method)
    except urllib.error.HTTPError as error:
        with error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401:
                raise
    login = login_for(reference.host, reference.repository)
    kind = challenge.partition(" ")[0].lower()
    if kind == "basic" and login is not None and not login.is_token:
        return _request(url, method, {"Authorization": login.basic})
    if kind != "bearer":
        raise urllib.error.HTTPError(url, 401, "login required", Message(), None)
    token = _token(challenge, reference, login, secure=url.startswith("https://"))
    return _request(url, method, {"Authorization": f"Bearer {token}"})


def _token(challenge: str, reference: Reference, login: Login | None, *, secure: bool) -> str:
    """The token service's token for the challenge: for our login, or anonymous."""
    words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = words.get("realm", "")
    if login is not None and secure and not realm.startswith("https://"):
        raise ValueError(f"the registry requests the password without encryption, at {realm}")
    asked = {"scope": words.get("scope") or f"repository:{reference.repository}:pull"}
    if "service" in words:
        asked["service"] = words["service"]
    if login is not None and login.is_token:
        asked |= {"grant_type": "refresh_token", "refresh_token": login.password}
        asked["client_id"] = "hpcbench"
        _, body = _request(realm, "POST", data=urllib.parse.urlencode(asked).encode())
    else:
        headers = {"Authorization": login.basic} if login is not None else {}
        _, body = _request(f"{realm}?{urllib.parse.urlencode(asked)}", "GET", headers)
    answer = json.loads(body)
    return str(answer.get("token") or answer.get("access_token"))


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but does not send the login to another host."""

    def redirect_request(self, *given: Any, **named: Any) -> urllib.request.Request | None:
        request, url = given[0], given[-1]
        following = super().redirect_request(*given, **named)
        if following is not None and request.host != urllib.parse.urlsplit(url).netloc:
            following.remove_header("Authorization")
        return following


_OPENER = urllib.request.build_opener(_SameHost)


def _request(
    url: str, method: str, headers: Mapping[str, str] | None = None, data: bytes | None = None
) -> tuple[Message, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the registry redirects to {url}, which is not HTTP")
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Accept": _ACCEPT, **(headers or {})}
    )
    with _OPENER.open(request, timeout=TIMEOUT) as answer:
        return answer.headers, answer.read()


def _refusal(reference: Reference, code: int) -> EnvironmentFault:
    if code == 404:
        return EnvironmentFault(
            f"the registry does not know {reference} (MANIFEST_UNKNOWN)",
            remedy="check the repository and the tag",
        )
    if code in (401, 403):
        login = login_for(reference.host, reference.repository)
        who = "without a login"
        if login is not None:
            who = f"with the login of {login.source}"
        return EnvironmentFault(
            f"the registry refuses {reference} {who}",
            remedy=f"run `apptainer registry login docker://{reference.host}`, `docker login` or "
            "`podman login`",
        )
    if code == 429:
        return EnvironmentFault(
            f"the registry of {reference} has answered too many requests from here (429)",
            remedy=f"log in with `apptainer registry login docker://{reference.host}`, wait some hours, "
            "or pin the image by @sha256 once it is in the cache",
        )
    return EnvironmentFault(
        f"the registry of {reference} answers HTTP {code}", remedy="try again later"
    )
