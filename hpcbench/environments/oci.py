"""Image references, and the digest a tag stands for, asked of the registry itself.

Only what that takes of the OCI distribution API: a HEAD for the manifest, with an anonymous token where the
registry wants one (https://distribution.github.io/distribution/spec/auth/token/).
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message

from hpcbench.errors import EnvironmentFault, Problem, UserError

TIMEOUT = 30.0
"""Longest wait for one answer of a registry, seconds."""

_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_REFERENCE = re.compile(
    r"(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """`docker://HOST/REPOSITORY:TAG@DIGEST`, taken apart."""

    host: str
    """`HOST[:PORT]`; Docker Hub's where none was named."""
    repository: str
    """`group/name`."""
    tag: str
    """`latest` where none was named."""
    digest: str | None
    """`sha256:…` if the reference pins it."""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read `docker://…`.

        Raises:
            UserError: it is not such a reference.
        """
        rest = text.removeprefix("docker://")
        host, slash, repository = rest.partition("/")
        if not slash or not (set(host) & {".", ":"} or host == "localhost"):
            host, repository = "docker.io", rest if slash else f"library/{rest}"
        match = _REFERENCE.fullmatch(repository)
        if match is None or not host:
            raise UserError(
                Problem(
                    f"'{text}' is no image reference",
                    remedy="write docker://HOST/REPOSITORY:TAG, in lower case",
                )
            )
        return cls(host, match["repository"], match["tag"] or "latest", match["digest"])

    def at(self, digest: str) -> str:
        """`HOST/REPOSITORY@DIGEST`, as a definition file wants it."""
        return f"{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        return f"docker://{self.host}/{self.repository}:{self.tag}"


def resolve(reference: Reference, insecure: Sequence[str]) -> str:
    """The digest that a reference names: of the manifest, or of the index of several platforms.

    A pinned reference costs no request, so it works without the registry.

    Raises:
        EnvironmentFault: the registry cannot be reached, does not know the image or wants a password.
    """
    if reference.digest is not None:
        return reference.digest
    # Docker Hub's name is not its registry's.
    host = "registry-1.docker.io" if reference.host == "docker.io" else reference.host
    scheme = "http" if reference.host in insecure else "https"
    url = f"{scheme}://{host}/v2/{reference.repository}/manifests/{reference.tag}"
    try:
        headers, _ = _authorised(url, "HEAD", reference)
        digest = headers.get("Docker-Content-Digest")
        if digest is None:  # the header is optional in the specification
            _, body = _authorised(url, "GET", reference)
            digest = "sha256:" + hashlib.sha256(body).hexdigest()
        return digest
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            raise _refusal(reference, error.code) from error
        raise EnvironmentFault(
            f"cannot reach the registry of {reference}: {getattr(error, 'reason', error)}",
            remedy=f"check the network; a registry without TLS: add {reference.host} to "
            "container.insecure_registries of the site profile; an image in the cache: pin it by @sha256",
        ) from error


def _authorised(url: str, method: str, reference: Reference) -> tuple[Message, bytes]:
    """A request, repeated with an anonymous token if the registry asks for one."""
    try:
        return _request(url, method)
    except urllib.error.HTTPError as error:
        with error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or not challenge.lower().startswith("bearer "):
                raise
    words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = {"scope": words.get("scope") or f"repository:{reference.repository}:pull"}
    if "service" in words:
        query["service"] = words["service"]
    _, body = _request(f"{words.get('realm')}?{urllib.parse.urlencode(query)}", "GET")
    answer = json.loads(body)
    token = answer.get("token") or answer.get("access_token")
    return _request(url, method, {"Authorization": f"Bearer {token}"})


def _request(
    url: str, method: str, headers: Mapping[str, str] | None = None
) -> tuple[Message, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the registry sends us to {url}")
    request = urllib.request.Request(
        url, method=method, headers={"Accept": _ACCEPT, **(headers or {})}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return answer.headers, answer.read()


def _refusal(reference: Reference, code: int) -> EnvironmentFault:
    if code == 404:
        return EnvironmentFault(
            f"the registry does not know {reference} (MANIFEST_UNKNOWN)",
            remedy="check the repository and the tag",
        )
    if code in (401, 403):
        return EnvironmentFault(
            f"the registry gives {reference} to nobody without a password",
            remedy="build the image by hand with `apptainer build FILE.sif docker://…` and name FILE.sif",
        )
    return EnvironmentFault(
        f"the registry of {reference} answers HTTP {code}", remedy="try again later"
    )
