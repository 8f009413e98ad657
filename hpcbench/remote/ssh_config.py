"""What a user has set up for `ssh`: `~/.ssh/config` and the keys of known hosts.

Read here: HostName, User, Port, IdentityFile, IdentitiesOnly, CertificateFile, ProxyJump, ProxyCommand,
HostKeyAlias, UserKnownHostsFile, GlobalKnownHostsFile; with Host, Match and Include. In known_hosts: plain,
hashed and wildcard names, `[host]:port`, `@revoked`; `@cert-authority` is passed over, so that a host known
only by a certificate is refused.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import getpass
import hashlib
import hmac
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.schema.documents import SshSite

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""Private keys that are tried where nothing else is said, in `~/.ssh`."""

MAX_INCLUDES = 16
"""How deep configuration files may include each other."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A host as a user writes it, `[USER@]HOST[:PORT]`."""

    host: str
    """Name or address; an alias of ~/.ssh/config."""
    user: str | None = None
    """User there; none: not said."""
    port: int | None = None
    """Port; none: not said."""

    @classmethod
    def read(cls, text: str) -> Hop:
        """Take `[USER@]HOST[:PORT]` or `ssh://…` apart; an IPv6 address with a port stands in brackets.

        Raises:
            UserError: it is not of that form.
        """
        found = re.fullmatch(
            r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:@/\[\]]+))"
            r"(?::(?P<port>\d{1,5}))?/?",
            text.strip(),
        )
        bare = re.fullmatch(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)", text)
        if bare and ":" in bare["host"].partition(":")[2]:
            return cls(bare["host"], bare["user"])
        host = (found["v6"] or found["host"]) if found else ""
        port = int(found["port"]) if found and found["port"] else None
        if found is None or host.startswith("-") or (port is not None and not 0 < port < 65536):
            raise UserError(Problem(f"'{text}' is no host", remedy="write [USER@]HOST[:PORT]"))
        return cls(host, found["user"], port)


@dataclass(frozen=True, slots=True)
class Settings:
    """How one host is reached."""

    host: str
    """Name or address to connect to."""
    port: int
    """Port."""
    user: str
    """User there."""
    keys: tuple[Path, ...]
    """Private keys to try, in this order; those that are not there are passed over."""
    only_keys: bool
    """Whether the agent may offer only these."""
    jumps: tuple[Hop, ...]
    """Hosts to go through, the first first."""
    command: str | None
    """ProxyCommand: a program that connects instead."""
    name: str
    """What the host is called in known_hosts."""
    known_hosts: tuple[Path, ...]
    """Files of known hosts."""


def settings_of(hop: Hop, site: SshSite | None = None) -> Settings:
    """What ~/.ssh/config says of a host, with what the site profile says over it.

    Raises:
        UserError: the configuration cannot be read.
    """
    found = _lookup(hop.host)
    host = found["hostname"]
    port = hop.port or int(found.get("port", 22))
    user = hop.user or found.get("user") or getpass.getuser()
    folder = Path.home() / ".ssh"
    keys = [Path(key).expanduser() for key in found.get("identityfile", ())]
    if site is not None and site.identity:
        keys.insert(0, Path(site.identity).expanduser())
    jump = (site.jump if site is not None else None) or found.get("proxyjump") or ""
    command = found.get("proxycommand")
    if jump.lower() == "none":
        jump, command = "", None
    alias = (found.get("hostkeyalias") or host).lower()
    files = shlex.split(found.get("userknownhostsfile", "")) or [
        str(folder / "known_hosts"), str(folder / "known_hosts2")
    ]  # fmt: skip
    files += shlex.split(found.get("globalknownhostsfile", "")) or ["/etc/ssh/ssh_known_hosts"]
    if site is not None and site.known_hosts:
        files.append(site.known_hosts)
    return Settings(
        host=host,
        port=port,
        user=user,
        keys=tuple(keys or (folder / name for name in DEFAULT_KEYS)),
        only_keys=found.get("identitiesonly", "no").lower() == "yes"
        or bool(site is not None and site.identity),
        jumps=tuple(Hop.read(one) for one in jump.split(",") if one.strip()),
        command=None if jump else command,
        name=alias if "hostkeyalias" in found or port == 22 else f"[{alias}]:{port}",
        known_hosts=tuple(Path(file).expanduser() for file in files),
    )


def _lookup(host: str) -> Mapping[str, Any]:
    from paramiko import ConfigParseError, SSHConfig
    from paramiko.ssh_exception import CouldNotCanonicalize

    path = Path.home() / ".ssh" / "config"
    try:
        lines = list(included(path, path.parent))
        found: Mapping[str, Any] = SSHConfig.from_text("\n".join(lines)).lookup(host)
        int(found.get("port", 22))
    except (ConfigParseError, CouldNotCanonicalize, ValueError, OSError) as error:
        raise UserError(Problem(f"cannot be read: {error}", str(path))) from error
    return found


def included(path: Path, folder: Path, depth: int = 0) -> Iterator[str]:
    """Lines of a configuration file, those of files it includes in their place.

    After an included file the block goes on in which the Include stood.

    Args:
        path: the file; one that is not there has no lines.
        folder: what relative names of included files are relative to.
        depth: how many files include this one.

    Raises:
        OSError: a file cannot be read.
        ValueError: files include each other without end, or one is not UTF-8.
    """
    if not path.exists():
        return
    if depth > MAX_INCLUDES:
        raise ValueError(f"files include each other more than {MAX_INCLUDES} deep")
    block = "Host *"
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() == "include":
            for name in shlex.split(rest):
                top = Path(name).expanduser()
                pattern = str(top if top.is_absolute() else folder / top)
                for file in sorted(Path("/").glob(pattern.lstrip("/"))):
                    yield from included(file, folder, depth + 1)
            yield block
            continue
        if word.lower() in ("host", "match"):
            block = line
        yield line


class KnownHosts:
    """Keys of hosts, as known_hosts files tell them."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._lines = [line for file in files for line in _lines(file)]

    def keys(self, name: str) -> list[tuple[str, bytes]]:
        """Kind and key of a host, of all its lines; `[host]:port` falls back to the host alone."""
        found = self._of(name)
        if not found and name.startswith("["):
            return self._of(name[1:].partition("]")[0])
        return found

    def revoked(self, key: bytes) -> bool:
        """Whether a key is one that no host may have."""
        return any(mark == "@revoked" and one == key for mark, _, _, one in self._lines)

    def _of(self, name: str) -> list[tuple[str, bytes]]:
        return [
            (kind, key)
            for mark, hosts, kind, key in self._lines
            if not mark and _matches(hosts, name)
        ]


def _lines(file: Path) -> Iterator[tuple[str, str, str, bytes]]:
    """Mark, hosts, kind and key of each line that is one."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = line.split()
        mark = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            yield mark, words[0], words[1], base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue


def _matches(hosts: str, name: str) -> bool:
    """Whether the first field of a line is for a host."""
    if hosts.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part) for part in hosts[3:].split("|"))
        except ValueError:
            return False
        return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
    found = False
    for pattern in hosts.lower().split(","):
        # Brackets mean a port here, not a set of letters as for fnmatch.
        literal = pattern.lstrip("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, literal):
            if pattern.startswith("!"):
                return False
            found = True
    return found
