"""Addresses of databases of results: what is refused, and that no message has a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.registry.database_address import Address, address_of, problems
from hpcbench.schema.outputs import Database
from tests.conftest import ROOT
from tests.unit.command import Cli


def _postgresql(url: str) -> Database:
    return Database(type="postgresql", url=url)


def test_an_address_has_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "p@ss/w:rd%41")
    url = "postgresql://ada:${env:PW}@db.site:5433/results?sslmode=require"
    found = address_of(_postgresql(url))
    assert found == Address(
        "postgresql", "db.site", 5433, "ada", "p@ss/w:rd%41", "results", "sslmode=require"
    )
    assert str(found) == "postgresql://ada@db.site:5433/results"
    assert "p@ss" not in repr(found)


def test_a_whole_address_may_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "postgresql://ada:hunter22@db/results")
    found = address_of(_postgresql("${env:URL}"))
    assert (found.user, found.password, found.host, found.name) == (
        "ada", "hunter22", "db", "results",
    )  # fmt: skip
    assert secret.mask("it is hunter22") == "it is ***"


def test_a_missing_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PW", raising=False)
    with pytest.raises(EnvironmentFault, match="PW"):
        address_of(_postgresql("postgresql://ada:${env:PW}@db/results"))


@pytest.mark.parametrize(
    ("database", "what"),
    [
        (_postgresql("postgresql://ada:hunter22@db/results"), "password in plain text"),
        (_postgresql("postgresql://db"), "names no database"),
        (_postgresql("mysql://db/results"), "not the address of a PostgreSQL server"),
        (_postgresql("postgresql://db:port/results"), "not the address of a PostgreSQL server"),
        (_postgresql("/tmp/results.sqlite"), "not the address of a PostgreSQL server"),
        (Database(type="sqlite", url="postgresql://db/results"), "the type is sqlite"),
        (Database(type="sqlite", url="results.sqlite"), "not an absolute path"),
    ],
)
def test_a_wrong_address_is_refused(database: Database, what: str) -> None:
    (found,) = list(problems(database))
    assert what in found[0]
    assert found[1]
    with pytest.raises(UserError, match="database.url") as raised:
        address_of(database)
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "fuse.beegfs", "beegfs", "ceph"])
def test_sqlite_is_refused_on_a_network_file_system(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"22 1 0:1 / / rw - ext4 x rw\n40 22 0:9 / {tmp_path} rw - {kind} server:/x rw\n"
    )
    monkeypatch.setattr("hpcbench.files.mounts.MOUNTS", mounts)
    database = Database(type="sqlite", url=f"{tmp_path}/far/results.sqlite")
    ((what, remedy),) = problems(database)
    assert "network file system" in what
    assert "local disk" in remedy
    assert "postgresql" in remedy
    monkeypatch.setenv("PLACE", f"{tmp_path}/results.sqlite")
    with pytest.raises(UserError, match="network file system"):
        address_of(Database(type="sqlite", url="${env:PLACE}"))


def test_sqlite_needs_a_file_that_is_on_a_local_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((what, _),) = problems(Database(type="sqlite", url=str(tmp_path)))
    assert what == f"{tmp_path} is a folder"
    far = tmp_path / "far"
    far.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"22 1 0:1 / / rw - ext4 x rw\n40 22 0:9 / {far} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr("hpcbench.files.mounts.MOUNTS", mounts)
    (tmp_path / "results.sqlite").symlink_to(far / "results.sqlite")
    ((what, _),) = problems(Database(type="sqlite", url=f"{tmp_path}/results.sqlite"))
    assert "network file system" in what


def test_the_place_of_a_mistake_is_named(tmp_path: Path, cli: Cli) -> None:
    plan = ROOT / "examples/demo/plan.yaml"
    wrong = tmp_path / "plan.yaml"
    lines = plan.read_text().rstrip().splitlines()
    wrong.write_text(
        "\n".join(
            [*lines, "database:", "  type: postgresql", "  url: postgresql://a:hunter22@db/x\n"]
        )
    )
    said = cli.both("validate", wrong, code=2)
    assert f"{wrong}:{len(lines) + 3}:" in said.out + said.err
    assert "password in plain text" in said.out + said.err
    assert "hunter22" not in said.out + said.err


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=4).filter(
        lambda one: one.strip() == one
    )
)
def test_any_password_reaches_the_server_as_it_is(password: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcbench.secret._read", lambda kind, name: password)
        patch.setattr("hpcbench.secret._missing", lambda kind, name: None)
        found = address_of(_postgresql("postgresql://ada:${file:/x/y@z:1}@db:1/results"))
    assert (found.password, found.host, found.port) == (password, "db", 1)
    secret._revealed.clear()
