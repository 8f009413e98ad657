"""What Apptainer and Singularity are called with; that it works is shown by tests/apptainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.environments import sif
from hpcbench.environments.sif import Program
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Command, Environment
from hpcbench.schema.documents import ContainerSite

DIGEST = "sha256:" + "1" * 64


def wrapped(tmp_path: Path, tool: str = "apptainer version 1.4.5", **container: object) -> Command:
    image, private = tmp_path / "x.sif", tmp_path / "private"
    image.touch()
    private.mkdir()
    site = ContainerSite.model_validate({"program": "/bin/true", **container})
    environment = Environment("apptainer", str(image), None, details={"apptainer": tool})
    return environments.wrap(environment, ["python"], [str(private)], {"A": "$HOME"}, 1, site)


@pytest.mark.parametrize(
    ("tool", "variable", "no_eval"),
    [
        ("apptainer version 1.4.5", "APPTAINERENV_A", True),
        ("singularity-ce version 4.1.2", "SINGULARITYENV_A", True),
        ("singularity version 3.8.7", "SINGULARITYENV_A", False),
    ],
)
def test_each_program_is_spoken_to_in_its_own_words(
    tmp_path: Path, tool: str, variable: str, no_eval: bool
) -> None:
    command = wrapped(tmp_path, tool)
    assert command.env[variable] == "$HOME"
    assert ("--no-eval" in command.argv) == no_eval


def test_gpus_of_amd_and_no_network_are_asked_for(tmp_path: Path) -> None:
    words = " ".join(wrapped(tmp_path, gpu_maker="amd", network="none").argv)
    assert "--rocm" in words and "--nv" not in words
    assert "--net --network none" in words


def test_a_build_that_will_not_fit_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sif, "download_size", lambda reference, insecure: 1 << 50)
    program = Program("/bin/false", "apptainer version 1.4.5", {
        "APPTAINER_CACHEDIR": str(tmp_path), "APPTAINER_TMPDIR": str(tmp_path),
    }, ContainerSite())  # fmt: skip
    source = Source("docker", f"registry/x@{DIGEST}", DIGEST)
    with pytest.raises(EnvironmentFault, match=r"\(1024.0 TiB\) takes about 5120.0 TiB"):
        program.build(source, tmp_path / "x.sif", lambda line: None)
    assert not list(tmp_path.glob("*.sif"))
