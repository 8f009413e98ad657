"""The script that installs a bundle; tests/packages has it with the real wheels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcbench.environments.offline_packages import INSTALL

PYTHON = """\
#!/bin/sh
case "$2" in
    venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp UV "$3/bin/uv"; cp UV "$3/bin/hpcbench" ;;
    pip) shift 2; echo "pip $*" >>CALLS ;;
    *) echo 3.11 ;;
esac
"""

UV = """\
#!/bin/sh
test "$1" = --version || { echo "uv $*" >>CALLS; mkdir -p "$UV_CACHE_DIR"; exit CODE; }
"""


@pytest.mark.parametrize("code", [0, 1])
def test_uv_installs_a_bundle_and_where_it_does_not_run_pip_does(tmp_path: Path, code: int) -> None:
    for name, text in (
        ("python", PYTHON.replace("UV", str(tmp_path / "uv"))),
        ("uv", UV.replace("CODE", str(code))),
        ("install.sh", INSTALL.replace("VERSION", "3.11").replace("BUILDERS", "builder")),
    ):
        (tmp_path / name).write_text(text.replace("CALLS", str(tmp_path / "calls")))
        (tmp_path / name).chmod(0o755)

    script, folder = tmp_path / "install.sh", tmp_path / "my folder"
    subprocess.run(["sh", script, folder, tmp_path / "python"], check=True)

    calls = (tmp_path / "calls").read_text().splitlines()
    first, second, *others = [line.split() for line in calls]
    assert (first[0], first[-1]) == ("pip", "uv")
    assert (second[0], second[-2:]) == ("uv", ["NAME[EXTRAS]", "builder"])
    assert [(line[0], line[-2:]) for line in others] == [
        ("pip", ["NAME[EXTRAS]", "builder"])
    ] * code
    assert not (folder / ".uv").exists()
