"""References of images in registries: `docker://HOST/REPOSITORY:TAG@DIGEST`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcbench.errors import Problem, UserError

_REFERENCE = re.compile(
    r"(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed `docker://HOST/REPOSITORY:TAG@DIGEST`."""

    host: str
    """`HOST[:PORT]`; by default Docker Hub's."""
    repository: str
    """`group/name`."""
    tag: str
    """By default `latest`."""
    digest: str | None
    """`sha256:…` if the reference pins it."""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read `docker://…`.

        Raises:
            UserError: the reference is invalid.
        """
        rest = text.partition("://")[2]
        host, slash, repository = rest.partition("/")
        if not slash or not (set(host) & {".", ":"} or host == "localhost"):
            host, repository = "docker.io", rest if slash else f"library/{rest}"
        match = _REFERENCE.fullmatch(repository)
        if match is None or not host:
            raise UserError(
                Problem(
                    f"'{text}' is not an image reference",
                    remedy="write docker://HOST/REPOSITORY:TAG, in lower case",
                )
            )
        return cls(host, match["repository"], match["tag"] or "latest", match["digest"])

    def at(self, digest: str) -> str:
        """`HOST/REPOSITORY@DIGEST`, the form for a definition file."""
        return f"{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        named = self.at(self.digest) if self.digest else f"{self.host}/{self.repository}:{self.tag}"
        return f"docker://{named}"
