"""The source of an image: a parsed reference, and its current digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.parse
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from hpcbench.environments.credentials import login_for
from hpcbench.environments.images import file_digest
from hpcbench.environments.oci import resolve
from hpcbench.environments.recipes import Recipe, parse
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.hashing import hash_file
from hpcbench.registry.paths import is_dockerfile
from hpcbench.schema.image_reference import Reference
from hpcbench.schema.site import ContainerSite
from hpcbench.unix_http import UnixConnection

LABEL = "hpcbench.source.digest"
"""Label of a SIF we built: the digest of its source."""

FORMS = (
    "write docker://…, oras://…, oci:FOLDER, oci-archive:FILE, docker-archive:FILE, docker-daemon:NAME:TAG, "
    "FILE.sif, a Dockerfile, FILE.def or venv:DIR"
)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an image."""

    transport: str
    """docker, oras, oci, oci-archive, docker-archive, docker-daemon, recipe or sif.

    The same image has another digest by each.
    """
    origin: str
    """The `From` of a definition file."""
    digest: str
    """Digest of the manifest, the archive, the recipe with all copied files, or the SIF."""
    insecure: bool = False
    """Whether its registry has no TLS."""
    sif: Path | None = None
    """The image itself, if no build is needed."""
    recipe: Recipe | None = None
    """The Dockerfile to build from."""
    text: str = ""
    """The definition file to build from."""

    @classmethod
    def of(cls, reference: str, cache: Path, site: ContainerSite) -> Source:
        """Resolve a reference to its current source.

        Raises:
            UserError: the reference is invalid, or names nothing.
            EnvironmentFault: the registry or daemon cannot be reached.
        """
        transport, colon, rest = reference.partition(":")
        insecure = site.insecure_registries
        if reference.startswith(("docker://", "oras://")):
            named = Reference.parse(reference)
            digest = resolve(named, insecure)
            return cls(transport, named.at(digest), digest, named.host in insecure)
        if colon and transport in ("oci-archive", "docker-archive"):
            path = _file(rest.removeprefix("//"), reference)
            return cls(transport, str(path), file_digest(path, cache))
        if colon and transport == "oci":
            folder, digest = _in_layout(rest.removeprefix("//"), reference)
            return cls(transport, f"{folder}@{digest}", digest)
        if colon and transport == "docker-daemon":
            name = rest.removeprefix("//")
            return cls(transport, name, _in_daemon(name, reference))
        if reference.endswith(".sif"):
            path = _file(reference, reference)
            return cls("sif", str(path), file_digest(path, cache), sif=path)
        if reference.endswith(".def"):
            return _of_definition(_file(reference, reference))
        if is_dockerfile(reference):
            path = _file(reference, reference)
            recipe = parse(path, site.build_args)
            recipe = recipe.at(resolve(recipe.base, insecure))
            insecurely = recipe.base.host in insecure
            return cls("recipe", str(path), recipe.digest, insecurely, recipe=recipe)
        raise UserError(Problem(f"'{reference}' is not an image reference", remedy=FORMS))

    @property
    def address(self) -> str:
        """Its name on a command line; recipes have none."""
        slashes = "//" if self.transport in ("docker", "oras") else ""
        return f"{self.transport}:{slashes}{self.origin}"

    @property
    def folder(self) -> Path | None:
        """Base folder of a definition file's paths; None: no particular one."""
        return Path(self.origin).parent if self.text else None

    def login(self) -> dict[str, str]:
        """Variables with the registry's login for Apptainer; it finds identity tokens itself."""
        if self.recipe is not None:
            host, repository = self.recipe.base.host, self.recipe.base.repository
        elif self.transport in ("docker", "oras"):
            host, _, repository = self.origin.partition("@")[0].partition("/")
        else:
            return {}
        found = login_for(host, repository)
        if found is None or found.is_token:
            return {}
        return {
            f"{name}_DOCKER_{key}": value
            for name in ("APPTAINER", "SINGULARITY")
            for key, value in (("USERNAME", found.username), ("PASSWORD", found.password))
        }

    def definition(self, tool: str, time: str) -> str:
        """The definition file; except for recipes it runs no command, so it needs no fakeroot."""
        labels = {LABEL: self.digest, "hpcbench.build.tool": tool, "hpcbench.build.time": time}
        labels = {name: value for name, value in labels.items() if value}
        if self.recipe is not None:
            return self.recipe.definition(labels)
        lines = "".join(f"    {name} {value}\n" for name, value in labels.items())
        if self.text:
            return f"{self.text.rstrip()}\n\n%labels\n{lines}"
        return f"Bootstrap: {self.transport}\nFrom: {self.origin}\n%labels\n{lines}"


def _of_definition(path: Path) -> Source:
    """A definition file: its digest covers its text and copied files; the file itself must pin its base."""
    text = path.read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode())
    for section in re.findall(r"^%files[^\n]*\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL):
        for line in section.splitlines():
            copied = Path(path.parent, line.split()[0]) if line.split() else path
            if copied.is_file():
                digest.update(hash_file(copied).encode())
    return Source("recipe", str(path), f"sha256:{digest.hexdigest()}", text=text)


def _in_layout(text: str, reference: str) -> tuple[Path, str]:
    """Folder of an OCI layout and the digest of one image: FOLDER, FOLDER:TAG or FOLDER@DIGEST."""
    place, _, wanted = text.partition("@")
    tag = ""
    try:
        tagged = not wanted and not Path(place).expanduser().is_dir()
    except OSError:  # it is in another user's folder
        tagged = True
    if tagged:
        place, _, tag = place.rpartition(":")
    folder = Path(place).expanduser().absolute()
    try:
        listed = json.loads((folder / "index.json").read_text(encoding="utf-8"))["manifests"]
        images = {
            one["digest"]: one.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
            for one in listed
        }
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserError(
            Problem(f"image '{reference}': {folder} is not an OCI layout ({type(error).__name__})")
        ) from error
    chosen = [one for one in images if (one == wanted if wanted else images[one] == tag or not tag)]
    if len(chosen) != 1:
        present = ", ".join(f"{name or '?'} = {digest}" for digest, name in images.items())
        raise UserError(
            Problem(
                f"image '{reference}' names {len(chosen)} images; {folder} holds {present}",
                remedy="write oci:FOLDER:TAG or oci:FOLDER@sha256:…",
            )
        )
    return folder, chosen[0]


def _in_daemon(name: str, reference: str) -> str:
    """Digest of an image name in Docker's daemon on this machine."""
    place = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not place.startswith("unix://"):
        raise EnvironmentFault(f"DOCKER_HOST is {place}", remedy="set it to a socket, unix:///…")
    try:
        with UnixConnection(place.removeprefix("unix://"), timeout=30) as connection:
            connection.request("GET", f"/images/{urllib.parse.quote(name, safe='')}/json")
            answer = connection.getresponse()
            body = answer.read()
    except (OSError, HTTPException) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise EnvironmentFault(
            f"cannot ask Docker's daemon at {place}: {why or error}",
            remedy="start it, or set DOCKER_HOST to its socket; a registry or `docker save` needs no daemon",
        ) from error
    if answer.status == 404:
        raise UserError(
            Problem(f"image '{reference}': the daemon at {place} has no image of that name")
        )
    digest: str | None = json.loads(body).get("Id") if answer.status == 200 else None
    if digest is None:
        raise EnvironmentFault(f"Docker's daemon at {place} answers {answer.status}")
    return f"sha256:{str(digest).removeprefix('sha256:')}"  # podman omits the prefix


def _file(path: str, reference: str) -> Path:
    found = Path(path).expanduser().absolute()
    try:
        there = found.is_file()
    except OSError as error:
        what = f"image '{reference}': {found} cannot be read: {error.strerror}"
        raise UserError(Problem(what)) from error
    if not there:
        raise UserError(Problem(f"image '{reference}': there is no file {found}"))
    return found
