"""Logins of image registries, read from the files of the usual tools.

The order: APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD (or SINGULARITY_…), podman's and
skopeo's `auth.json`, Docker's `config.json`, Apptainer's `docker-config.json`. The files share one
format: logins by host, or helper programs that return a login
(https://docs.docker.com/reference/cli/docker/login/#credential-stores).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.subprocesses import run

DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
"""Names of the same registry."""

HELPER_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Login:
    """User and password for a registry."""

    source: str
    """Origin of the login, for messages."""
    username: str
    password: str = field(repr=False)
    is_token: bool = False
    """Whether the password is an identity token, which is only valid for a registry's token service."""

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def login_for(host: str, repository: str = "") -> Login | None:
    """The most specific login for a registry in the first file that has any; None: no login exists.

    Args:
        host: `HOST[:PORT]`.
        repository: `group/name`; some files have logins by group.
    """
    for prefix in ("APPTAINER", "SINGULARITY"):
        name, password = (
            os.environ.get(f"{prefix}_DOCKER_{key}") for key in ("USERNAME", "PASSWORD")
        )
        if name and password:
            return _kept(Login(f"{prefix}_DOCKER_USERNAME", name, password))
    for path in _files():
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            found = _in_file(path, data, host, repository)
        except (OSError, ValueError, AttributeError, TypeError):
            continue  # another program's file; the registry's refusal will say which login is missing
        if found is not None:
            return _kept(found)
    return None


def _files() -> Iterator[Path]:
    environ = os.environ
    if named := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    home = Path(environ.get("HOME") or Path.home())
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    for name in ("apptainer", "singularity"):
        folder = environ.get(f"{name.upper()}_CONFIGDIR") or home / f".{name}"
        yield Path(folder) / "docker-config.json"


def _in_file(path: Path, data: Mapping[str, Any], host: str, repository: str) -> Login | None:
    names = list(_names(host, repository))
    helpers = data.get("credHelpers") or {}
    for name in names:
        if name in helpers and (found := _ask_helper(helpers[name], name)):
            return found
    logins = {_plain(key): value for key, value in (data.get("auths") or {}).items()}
    for name in names:
        if (entry := logins.get(name)) and (found := _of_entry(path, entry)):
            return found
    if helper := data.get("credsStore"):
        asked = "https://index.docker.io/v1/" if host in DOCKER_HUB else host
        return _ask_helper(helper, asked)
    return None


def _names(host: str, repository: str) -> Iterator[str]:
    """Keys under which a file may store a login, the most specific first."""
    groups = repository.split("/")
    for one in DOCKER_HUB if host in DOCKER_HUB else (host,):
        for depth in range(len(groups), 0, -1):
            yield "/".join((one, *groups[:depth]))
        yield one


def _plain(key: str) -> str:
    """`https://HOST/v1/` as `HOST`."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2")


def _of_entry(path: Path, entry: Mapping[str, Any]) -> Login | None:
    if token := entry.get("identitytoken"):
        return Login(str(path), "", str(token), is_token=True)
    if packed := entry.get("auth"):
        name, _, password = base64.b64decode(packed, validate=True).decode().partition(":")
        return Login(str(path), name, password.rstrip("\0")) if name else None
    if entry.get("username") and entry.get("password"):
        return Login(str(path), str(entry["username"]), str(entry["password"]))
    return None


def _ask_helper(helper: str, host: str) -> Login | None:
    program = f"docker-credential-{helper}"
    if "/" in helper:
        return None
    try:
        ended = run([program, "get"], HELPER_SECONDS, given=host)
        answer = {} if ended.failed else json.loads(ended.out)
    except (OSError, ValueError):
        return None
    if not answer.get("Secret"):
        return None
    is_token = answer.get("Username") == "<token>"
    return Login(program, answer.get("Username", ""), answer["Secret"], is_token)


def _kept(login: Login) -> Login:
    """The login; its password is masked in all output from now on."""
    secret.remember(login.password)
    return login
