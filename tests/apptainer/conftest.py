"""The two programs that run images on clusters, for tests that both have to pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.lab import Lab


@pytest.fixture(params=["apptainer", "singularity"])
def program(request: pytest.FixtureRequest, lab: Lab) -> Path:
    """Apptainer without setuid, SingularityCE with it; the file's name is the program's."""
    return lab.home / "bin/apptainer" if request.param == "apptainer" else lab.singularity
