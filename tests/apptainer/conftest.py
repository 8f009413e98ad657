"""The two programs that run images on clusters, for tests that both have to pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import first
from tests.cluster.lab import Lab


@pytest.fixture(params=first(1, ["apptainer", "singularity"]))
def program(request: pytest.FixtureRequest, lab: Lab) -> Path:
    """Apptainer without setuid, SingularityCE with it (a campaign); the file's name is the program's."""
    return lab.home / "bin/apptainer" if request.param == "apptainer" else lab.singularity
