"""The contract of environments, for a virtual environment on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite
from tests.environments_contract import EnvironmentContract, Subject

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("venv")
    argv = [sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")]
    subprocess.run(argv, check=True)
    return environments.prepare(f"venv:{folder / 'bare'}", folder / "cache", ContainerSite())


class TestVenv(EnvironmentContract):
    @pytest.fixture
    def subject(self, bare: Environment, tmp_path: Path) -> Subject:
        return Subject(bare, tmp_path, isolates=False)
