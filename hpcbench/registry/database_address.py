"""The address of a database of results: its parts, its secrets by reference, and what makes it unusable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hpcbench import secret
from hpcbench.errors import Problem, UserError
from hpcbench.files.mounts import is_local
from hpcbench.schema.outputs import Database

_EXAMPLE = "for example postgresql://USER:${env:NAME}@HOST/DATABASE"
_SCHEMES = ("postgresql", "postgres")
_PLACE = re.compile("\ue000([0-9]+)\ue001")
"""Stands for a reference while an address is taken apart: a reference contains `:` and `/`."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is."""

    kind: str
    """`postgresql` or `sqlite`."""
    host: str = ""
    """Host of the server; empty: a socket of this machine, or as PGHOST says."""
    port: int | None = None
    """Port of the server; None: the default."""
    user: str = ""
    """Account in the database; empty: as PGUSER says, or the login name."""
    password: str = field(default="", repr=False)
    """Its password; empty: from ~/.pgpass, or none."""
    name: str = ""
    """The database's name."""
    options: str = ""
    """Options of the connection as a query, `sslmode=verify-full`."""
    path: Path | None = None
    """File of SQLite."""

    def __str__(self) -> str:
        """For people and for notes: without the password."""
        if self.path is not None:
            return f"sqlite {self.path}"
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port is not None else ""
        return secret.mask(f"postgresql://{user}{self.host}{port}/{self.name}")


def address_of(database: Database) -> Address:
    """The address, with its secrets.

    Raises:
        UserError: the address is wrong.
        EnvironmentFault: a secret is missing.
    """
    url, whole = database.url, _whole_reference(database.url)
    if whole or database.type == "sqlite":
        url = secret.reveal(url)
    if whole:
        _remember_password(url)
    wrong = list(_problems(database.type, url, with_password=whole))
    if wrong:
        raise UserError(
            *(
                Problem(f"database.url: {secret.mask(what)}", remedy=remedy)
                for what, remedy in wrong
            )
        )
    if database.type == "sqlite":
        return Address("sqlite", path=_path(url))
    return _server(url, secret.reveal)


def problems(database: Database) -> Iterator[tuple[str, str]]:
    """The mistake of an address, and the remedy. It reveals no secret."""
    if not _whole_reference(database.url):
        yield from _problems(database.type, database.url)


def _problems(kind: str, url: str, *, with_password: bool = False) -> Iterator[tuple[str, str]]:
    """As `problems`; `with_password`: the whole address comes from a reference."""
    if kind == "sqlite":
        yield from _problems_of_file(url)
        return
    if "://" not in url or url.partition("://")[0] not in _SCHEMES:
        yield "not the address of a PostgreSQL server", _EXAMPLE
        return
    try:
        found = _server(url, lambda text: text)
    except ValueError as error:
        yield f"not the address of a PostgreSQL server: {error}", _EXAMPLE
        return
    if not found.name:
        yield "the address names no database", _EXAMPLE
    if found.password and not with_password and not secret.REFERENCE.search(found.password):
        yield (
            "the address contains a password in plain text",
            "write ${env:NAME} or ${file:PATH} instead, or put the password into ~/.pgpass",
        )


def _problems_of_file(url: str) -> Iterator[tuple[str, str]]:
    if url.partition("://")[0] in _SCHEMES:
        yield (
            "the address of a PostgreSQL server, and the type is sqlite",
            "write `type: postgresql`",
        )
        return
    path = _path(url)
    if not path.is_absolute():
        yield f"{path} is not an absolute path", "write the path from / on"
    elif _is_folder(path):
        yield f"{path} is a folder", f"name a file: {path}/results.sqlite"
    elif not is_local(Path(os.path.realpath(path)).parent):
        yield (
            f"{path} is on a network file system, where SQLite's locks do not hold",
            "name a file on a local disk of this machine, or use `type: postgresql`",
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # one that we may not enter: opening says so
        return False


def _path(url: str) -> Path:
    """SQLite's file: a path, or SQLAlchemy's form `sqlite:///PATH`."""
    plain = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else url
    if url != plain and not plain.startswith(("/", "~", "$")):
        plain = f"/{plain}"
    return Path(os.path.expandvars(plain)).expanduser()


def _whole_reference(url: str) -> bool:
    return secret.REFERENCE.fullmatch(url.strip()) is not None


def _remember_password(url: str) -> None:
    try:
        secret.remember(unquote(urlsplit(url).password or ""))
    except ValueError:
        return  # reported when the address is taken apart


def _server(url: str, reveal: secret.Change) -> Address:
    """The parts of a server's address; a secret inside a part may contain any character.

    Raises:
        ValueError: it is no address.
    """
    held: list[str] = []

    def keep(match: re.Match[str]) -> str:
        held.append(match[0])
        return f"\ue000{len(held) - 1}\ue001"

    def part(text: str | None) -> str:
        plain = unquote(text or "")
        return reveal(_PLACE.sub(lambda match: held[int(match[1])], plain))

    found = urlsplit(secret.REFERENCE.sub(keep, url))
    port = found.netloc.rpartition("@")[2].partition(":")[2]
    if port and _PLACE.fullmatch(port):
        raise ValueError("the port is a reference")
    return Address(
        "postgresql", part(found.hostname), found.port, part(found.username), part(found.password),
        part(found.path.lstrip("/")), part(found.query),
    )  # fmt: skip
