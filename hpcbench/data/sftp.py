"""SFTP: `sftp://[USER@]HOST[:PORT]/FOLDER`, with the keys, hosts and agent that `ssh` uses.

`~/.ssh/config` is heeded for host names, users, ports, keys and ProxyCommand; a host that is not in
`known_hosts` is refused. `/~/` at the beginning of the folder is the home over there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from hpcbench.data.storage import PIECE, told_as_os_error
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import StoredFile

REQUEST = 32768
"""Most bytes one request of the protocol reads; many of them are under way at once."""


class SftpStorage:
    """Files of another machine over one SSH connection."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 8

    class Options(BaseModel, extra="forbid", frozen=True):
        """What `~/.ssh/config` does not say."""

        key: str | None = None
        """File with the private key."""
        password: str | None = None
        """Password, or that of the key; a reference."""
        known_hosts: str | None = None
        """File with host keys beside `~/.ssh/known_hosts`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._mine = threading.local()

    def list(self, url: str) -> Iterator[StoredFile]:
        """Every file below the folder; hidden ones left out, links to files followed."""
        with told_as_os_error(url, _explain):
            sftp, top = self._sftp(url), _folder(url)
            waiting = [""]
            while waiting:
                below = waiting.pop()
                for found in sftp.listdir_iter(f"{top}/{below}"):
                    name, mode = found.filename, found.st_mode or 0
                    if name.startswith("."):
                        continue
                    if stat.S_ISLNK(mode):
                        found = sftp.stat(f"{top}/{below}{name}")
                        mode = found.st_mode or 0
                        if stat.S_ISDIR(mode):
                            continue  # it may lead in a circle
                    if stat.S_ISDIR(mode):
                        waiting.append(f"{below}{name}/")
                    else:
                        mark = f"{found.st_mtime}-{found.st_size}"
                        yield StoredFile(below + name, int(found.st_size or 0), mark)

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        """Bytes of one file; many requests are sent ahead of their answers."""
        with told_as_os_error(f"{url}/{file.path}", _explain):
            sftp = self._sftp(url)
            with sftp.open(f"{_folder(url)}/{file.path}", "rb") as opened:
                wanted = [(at, min(REQUEST, stop - at)) for at in range(start, stop, REQUEST)]
                step = PIECE // REQUEST * 64
                for first in range(0, len(wanted), step):
                    yield from opened.readv(wanted[first : first + step])

    def put(self, source: Path, url: str, path: str) -> None:
        """Write one file beside its place, then give it its name."""
        with told_as_os_error(f"{url}/{path}", _explain):
            sftp = self._sftp(url)
            place = f"{_folder(url)}/{path}"
            parts = place.split("/")
            for depth in range(2, len(parts)):
                with contextlib.suppress(OSError):
                    sftp.mkdir("/".join(parts[:depth]))
            temporary = f"{'/'.join(parts[:-1])}/.{parts[-1]}.{os.getpid()}.tmp"
            try:
                sftp.put(str(source), temporary)
                sftp.posix_rename(temporary, place)
            except BaseException:
                with contextlib.suppress(OSError):
                    sftp.remove(temporary)
                raise

    def _sftp(self, url: str) -> Any:
        """This thread's channel of the connection to a host; a new one where the old one broke."""
        host = urlsplit(url).netloc
        known: dict[str, Any] = self._mine.__dict__.setdefault("channels", {})
        channel = known.get(host)
        if channel is None or channel.sock.closed:
            channel = known[host] = self._client(host).open_sftp()
            channel.get_channel().settimeout(60)
        return channel

    def _client(self, host: str) -> Any:
        with self._lock:
            client = self._clients.get(host)
            transport = client.get_transport() if client is not None else None
            if transport is None or not transport.is_active():
                client = self._clients[host] = self._connect(host)
            return client

    def _connect(self, place: str) -> Any:
        paramiko = self._paramiko
        parts = urlsplit(f"sftp://{place}")
        config = paramiko.SSHConfig()
        with contextlib.suppress(FileNotFoundError):
            config = paramiko.SSHConfig.from_path(str(Path("~/.ssh/config").expanduser()))
        known = config.lookup(parts.hostname or "")
        client = paramiko.SSHClient()
        client.load_system_host_keys()
        if self._options.known_hosts:
            client.load_host_keys(str(Path(self._options.known_hosts).expanduser()))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        keys = [self._options.key] if self._options.key else known.get("identityfile", [])
        proxy = known.get("proxycommand")
        client.connect(
            known.get("hostname", parts.hostname),
            port=parts.port or int(known.get("port", 22)),
            username=unquote(parts.username) if parts.username else known.get("user"),
            password=self._options.password,
            key_filename=[str(Path(key).expanduser()) for key in keys] or None,
            sock=paramiko.ProxyCommand(proxy) if proxy else None,
            timeout=20,
            banner_timeout=20,
            auth_timeout=20,
        )
        return client

    @cached_property
    def _paramiko(self) -> Any:
        try:
            import paramiko
        except ImportError as error:
            raise EnvironmentFault(
                "sftp:// needs paramiko", remedy="pip install 'hpcbench[sftp]'"
            ) from error
        return paramiko


def _explain(error: Exception) -> tuple[type[OSError], str]:
    name = type(error).__name__
    if name in ("AuthenticationException", "PasswordRequiredException", "BadAuthenticationType"):
        return PermissionError, "the server refuses the login"
    if name == "BadHostKeyException":
        return PermissionError, "the host's key is not the known one"
    if "known_hosts" in str(error):
        return PermissionError, "the host is not in known_hosts: `ssh` to it once"
    return OSError, str(error) or "the connection broke"


def _folder(url: str) -> str:
    path = unquote(urlsplit(url, allow_fragments=False).path).rstrip("/")
    return f".{path[2:]}" if path.startswith("/~") else path
