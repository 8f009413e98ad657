"""Entry points that a package's definition declares are compared with those that are really there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.environments.plugin_packages import Locked, check_provides
from hpcbench.errors import UserError
from hpcbench.schema.package import Package, PypiSource

PACKAGE = Package(
    name="near",
    source=PypiSource(type="pypi", name="Near-Metrics", version="1.0"),
    provides={"metrics": ["near"]},
)
LOCKED = {"near": Locked("near", "Near-Metrics==1.0", ("Near-Metrics==1.0",))}


def distribution(folder: Path, name: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hpcbench.metrics]\nnear = near:Near\n")


def test_a_package_that_this_python_has_already_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip leaves it alone, so the folder for the plan's packages does not have it."""
    (tmp_path / "plan").mkdir()
    distribution(tmp_path / "site", "near_metrics")
    monkeypatch.syspath_prepend(tmp_path / "site")
    check_provides(tmp_path / "plan", {"near": PACKAGE}, {}, LOCKED)


def test_another_package_with_such_a_plugin_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan").mkdir()
    distribution(tmp_path / "site", "others")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(UserError, match="package 'near' provides no metrics plugin 'near'"):
        check_provides(tmp_path / "plan", {"near": PACKAGE}, {}, LOCKED)


def test_a_requirement_without_a_name_is_looked_up_in_the_folder_alone(tmp_path: Path) -> None:
    distribution(tmp_path / "plan", "near_metrics")
    locked = {"near": Locked("near", "x", ("git+https://git.example/near.git",))}
    check_provides(tmp_path / "plan", {"near": PACKAGE}, {}, locked)
