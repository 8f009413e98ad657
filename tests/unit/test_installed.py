"""The distribution is `hpcbench-vlm`: what is said about installing it, and what is in its way."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hpcbench import installed
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.site import Site
from hpcbench.site.doctor import checks
from tests.conftest import ROOT

EXTRAS = (
    "hf", "http", "s3", "pdf", "arrow", "excel", "portal", "postgresql", "docker", "mlflow",
    "wandb",
)  # fmt: skip

OURS = "[console_scripts]\nhpcbench = hpcbench_vlm:entry\n"
BEFORE = "[console_scripts]\nhpcbench = hpcbench.cli.main:entry\n"
THEIRS = "[console_scripts]\nben-sh = hpcbench.cli.bensh:main\n"

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Requires-Dist: numpy>=1
Requires-Dist: pydantic>=2.6; extra == 'wrapper'
Requires-Dist: no-such-package[fast]>=3; extra == 'wrapper'
Requires-Dist: hpcbench-vlm[wrapper]; extra == 'hf'
Requires-Dist: torch>=99; extra == 'hf'
Requires-Dist: pydantic>=2.6; extra == 'all-there'
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which alone distributions of hpcbench are looked for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    real = metadata.distributions

    def without_ours(**asked: str) -> list[metadata.Distribution]:
        found = real(**asked)  # type: ignore[arg-type]
        return [one for one in found if "name" not in asked or _below(one, tmp_path)]

    monkeypatch.setattr(metadata, "distributions", without_ours)
    installed.own.cache_clear()
    return tmp_path


def _below(one: metadata.Distribution, folder: Path) -> bool:
    return Path(str(one.locate_file(""))).resolve() == folder.resolve()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Packages that a test installs are not found by the next one, of this file or another."""
    installed.own.cache_clear()
    yield
    installed.own.cache_clear()


def put(site: Path, name: str, version: str, entry_points: str) -> None:
    """A distribution's metadata, as pip leaves it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA.format(name=name, version=version))
    (folder / "entry_points.txt").write_text(entry_points)


def words(command: str) -> list[str]:
    """The requirements that a command installs."""
    words = shlex.split(command.partition(" install ")[2].partition(";")[0])
    return words[2:] if words[0] == "--python" else words


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_leads_to_packages_and_never_to_our_own_name(extra: str) -> None:
    names = {installed.normal(Requirement(one).name) for one in installed.requirements(extra)}
    assert names
    assert not names & {installed.NAME, installed.OLD_NAME}


def test_the_hint_names_what_is_missing_of_an_extra_and_of_the_extras_it_names(site: Path) -> None:
    put(site, "hpcbench-vlm", "0.2", OURS)
    assert words(installed.install_hint("wrapper")) == ["no-such-package[fast]>=3"]
    assert words(installed.install_hint("hf")) == ["no-such-package[fast]>=3", "torch>=99"]


def test_where_nothing_is_missing_something_is_broken_and_all_is_named(site: Path) -> None:
    put(site, "hpcbench-vlm", "0.2", OURS)
    assert words(installed.install_hint("all-there")) == ["pydantic>=2.6"]


def test_users_who_would_get_pytorch_learn_of_the_build_for_cpus(site: Path) -> None:
    put(site, "hpcbench-vlm", "0.2", OURS)
    assert f"install torch --index-url {installed.CPU_INDEX}" in installed.install_hint("hf")
    assert "torch" not in installed.install_hint("wrapper")


def test_one_constant_leads_all_messages_to_the_index(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(site, "hpcbench-vlm", "0.2", OURS)
    monkeypatch.setattr(installed, "PUBLISHED", True)
    assert words(installed.install_hint("wrapper")) == ["hpcbench-vlm[wrapper]"]


def test_a_command_is_for_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Path(sys.executable).with_name("pip")
    monkeypatch.setattr(installed.shutil, "which", lambda name: str(beside))  # type: ignore[attr-defined]
    assert installed.install_hint("s3").startswith("pip install ")
    monkeypatch.setattr(installed.shutil, "which", lambda name: "/usr/bin/pip")  # type: ignore[attr-defined]
    assert installed.install_hint("s3").startswith(f"{sys.executable} -m pip install ")
    monkeypatch.setattr(installed, "find_spec", lambda name: None)  # uv's environments have no pip
    assert installed.install_hint("s3").startswith(
        f"{sys.executable} -m uv pip install --python {sys.executable} "
    )


def test_an_environment_of_before_the_rename_works_until_it_is_installed_again(site: Path) -> None:
    put(site, "hpcbench", "0.1.0", BEFORE)
    assert installed.own().name == "hpcbench"
    assert installed.stem() == "hpcbench-0.1.0"
    (found,) = (one for one in checks(Site(name="default")) if one.name == "installed")
    assert (found.state, found.detail.partition(" is ")[0]) == ("warning", "hpcbench 0.1.0")
    put(site, "hpcbench-vlm", "0.2", OURS)
    installed.own.cache_clear()
    assert installed.stem() == "hpcbench_vlm-0.2"
    ((what, remedy),) = installed.in_the_way()
    assert "hpcbench 0.1.0, this project under its old name" in what
    assert "uninstall -y hpcbench hpcbench-vlm" in remedy


def test_another_projects_metadata_is_never_taken_for_ours(site: Path) -> None:
    put(site, "hpcbench", "0.11", THEIRS)
    with pytest.raises(EnvironmentFault, match="hpcbench-vlm is not installed"):
        installed.own()


def test_doctor_names_another_project_in_the_same_environment(site: Path) -> None:
    put(site, "hpcbench-vlm", "0.2", OURS)
    put(site, "hpcbench", "0.11", THEIRS)
    found = [one for one in checks(Site(name="default")) if one.name == "installed"]
    assert [(one.state, one.remedy is not None) for one in found] == [("failed", True)]
    assert "hpcbench 0.11, another project" in found[0].detail


@pytest.mark.parametrize("package", ['__version__ = "0.11"\n', None])
def test_the_command_refuses_a_package_of_another_project(
    tmp_path: Path, package: str | None
) -> None:
    (tmp_path / "hpcbench/cli").mkdir(parents=True)  # without __init__.py: what an uninstall left
    if package is not None:
        (tmp_path / "hpcbench/__init__.py").write_text(package)
    (tmp_path / "hpcbench_vlm.py").write_text((ROOT / "hpcbench_vlm.py").read_text())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import hpcbench_vlm; hpcbench_vlm.entry()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "hpcbench") in done.stderr
    assert "pip uninstall -y hpcbench hpcbench-vlm" in done.stderr


FROM_THE_INDEX = re.compile(r"""\bpip\d? install\s+(?:-\S+\s+)*["']?hpcbench(?:-vlm)?(?![\w/])""")
THE_OTHER_PROJECT = re.compile(
    r"""["'`\s]hpcbench\[|\bpip\d? install\s+(?:-\S+\s+)*["']?hpcbench(?![\w/-])"""
)


@pytest.mark.long
def test_no_page_template_or_message_installs_from_an_index_that_does_not_have_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "ci_templates").iterdir()]
    sources = [*(ROOT / "hpcbench").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    named = {
        path.name: [match[0] for match in FROM_THE_INDEX.finditer(path.read_text())]
        for path in [*pages, *sources]
    }
    if installed.PUBLISHED:
        assert named["README.md"], "README installs from the source folder, and the index has it"
        assert named["install.md"], "docs/install.md installs from the source folder only"
    else:
        assert not {name: found for name, found in named.items() if found}
    for path in [*pages, *sources]:
        assert not THE_OTHER_PROJECT.findall(path.read_text()), path
