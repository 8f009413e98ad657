"""Jobs of `submit --snapshot-env` run what was there at submit, whatever pip and git do later."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.submit.snapshot import unused
from tests.unit.small_env import PROBE, SmallEnvironment, run

pytestmark = pytest.mark.long

COPY = """\
import json, sys
from pathlib import Path
from hpcbench.submit.snapshot import copy_environment
said = []
made = copy_environment(Path(sys.argv[1]), say=said.append)
print(json.dumps([str(made.path), made.fingerprint.to_json(), said]))
"""

ELEMENT = """\
import sys
from hpcbench.submit.array_task import ArrayTask
ArrayTask("probe", *sys.argv[1:])()
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SmallEnvironment:
    return SmallEnvironment(tmp_path_factory.mktemp("python") / "env")


def snapshot(env: SmallEnvironment, home: Path, **environ: str) -> tuple[Path, dict, list[str]]:  # type: ignore[type-arg]
    path, data, said = json.loads(env.run(COPY, home / "cache", **environ))
    return Path(path), data, said


def experiment_on(home: Path, path: Path, data: object) -> Path:
    folder = home / "experiments" / "20261122-0000-copy-aaaa"
    folder.mkdir(parents=True)
    manifest = {"fingerprint": data, "snapshot": str(path)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_the_copy_runs_the_old_code_after_pip_and_git_changed_the_original(tmp_path: Path) -> None:
    env, home = SmallEnvironment(tmp_path / "env"), tmp_path / "home"
    path, data, _ = snapshot(env, home)
    experiment = experiment_on(home, path, data)
    # The user installs, and pulls.
    env.install("probe", "2.0", {"probe.py": PROBE.format(version="2.0")})
    work = env.checkout / "hpcbench" / "submit" / "array_task.py"
    work.write_text(work.read_text() + "\nraise RuntimeError('half a git pull')\n")
    out = tmp_path / "out.json"
    done = run([path / "bin/python", "-I", "-c", ELEMENT, experiment, "g0", out])
    assert done.returncode == 0, done.stderr
    version, file, executable, _ = json.loads(out.read_text())
    assert version == "1.0"
    assert Path(file).is_relative_to(path)
    assert Path(executable).is_relative_to(path)
    # Nor does it need the original any more.
    shutil.rmtree(env.folder)
    shutil.rmtree(env.checkout)
    out.unlink()
    assert run([path / "bin/python", "-I", "-c", ELEMENT, experiment, "g0", out]).returncode == 0
    assert json.loads(out.read_text())[0] == "1.0"


def test_without_a_copy_a_job_stops_after_the_same_changes(tmp_path: Path) -> None:
    env, home = SmallEnvironment(tmp_path / "env"), tmp_path / "home"
    reported = env.run(
        "import runpy; runpy.run_module('hpcbench.submit.fingerprint', run_name='__main__')"
    )
    experiment = experiment_on(home, Path(), json.loads(reported))
    manifest = json.loads((experiment / "manifest.json").read_text())
    (experiment / "manifest.json").write_text(json.dumps({**manifest, "snapshot": None}))
    out = tmp_path / "out.json"
    env.run(ELEMENT, experiment, "g0", out)
    out.unlink()
    env.install("probe", "2.0", {"probe.py": PROBE.format(version="2.0")})
    (env.checkout / "hpcbench" / "worker" / "process.py").write_text("# pulled\n")
    done = run([env.python, "-I", "-c", ELEMENT, experiment, "g0", out])
    assert done.returncode == 3
    assert "probe 1.0 → 2.0; hpcbench/worker/process.py differs" in done.stderr
    assert not out.exists()


def test_equal_environments_share_one_copy(original: SmallEnvironment, tmp_path: Path) -> None:
    first, data, said = snapshot(original, tmp_path)
    second, again, said_again = snapshot(original, tmp_path)
    assert (first, data) == (second, again)
    assert "copying this environment" in said[0]
    assert "files" in said[0]
    assert "an existing copy" in said_again[0]
    assert [path.name for path in (tmp_path / "cache/environments").iterdir()] == [first.name]


def test_nothing_of_the_copy_leads_back(original: SmallEnvironment, tmp_path: Path) -> None:
    script = original.folder / "bin" / "probe"
    script.write_text(f"#!{original.folder}/bin/python\nimport probe; print(probe.__file__)\n")
    script.chmod(0o755)
    path, data, _ = snapshot(original, tmp_path)
    assert data["executable"] == f"{path}/bin/python"
    assert all(place.startswith(str(path)) for place in data["places"])
    done = run([path / "bin" / "probe"])
    assert done.stdout.startswith(str(path)), done.stderr
    for file in (path / "lib").rglob("*.pth"):
        assert str(original.checkout) not in file.read_text()


def test_what_lies_beside_the_environment_comes_along_in_its_order(
    original: SmallEnvironment, tmp_path: Path
) -> None:
    beside = tmp_path / "mine"
    beside.mkdir()
    (beside / "probe.py").write_text(PROBE.format(version="mine"))
    (beside / "thousands-of-pages.parquet").write_text("data")
    home = tmp_path / "home"
    code = "import sys; sys.path.insert(0, sys.argv[2]); sys.path.insert(0, '')\n" + COPY
    path, data, _ = json.loads(original.run(code, home / "cache", beside))
    out = tmp_path / "out.json"
    experiment = experiment_on(home, Path(path), data)
    done = run([Path(path) / "bin/python", "-I", "-c", ELEMENT, experiment, "g0", out])
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())[0] == "mine"
    assert [one.name for one in (Path(path) / "before/0").iterdir() if one.is_file()] == [
        "probe.py"
    ]


def test_what_a_path_file_adds_stays_behind_what_is_installed(tmp_path: Path) -> None:
    env, more = SmallEnvironment(tmp_path / "env"), tmp_path / "more"
    (more / "probe-0.1.dist-info").mkdir(parents=True)
    (more / "probe-0.1.dist-info" / "RECORD").write_text("older")
    (more / "probe.py").write_text(PROBE.format(version="0.1"))
    (more / "seldom.py").write_text("")
    (env.site / "more.pth").write_text(f"{more}\n")
    path, data, _ = snapshot(env, tmp_path)
    assert data["distributions"]["probe"]["version"] == "1.0"
    reported = run([path / "bin/python", "-I", "-c", "import probe, seldom; print(probe.VERSION)"])
    assert reported.stdout == "1.0\n", reported.stderr


BROKEN = """\
from hpcbench.submit import snapshot
snapshot._interpreter = lambda place: (place / "bin/python").unlink()
"""


def test_a_copy_that_does_not_run_is_not_left_there(
    original: SmallEnvironment, tmp_path: Path
) -> None:
    done = run([original.python, "-I", "-c", BROKEN + COPY, tmp_path / "cache"])
    assert "the copy of this environment does not run: bin/python: No such file" in done.stderr
    assert list((tmp_path / "cache/environments").iterdir()) == []


def test_copies_that_no_open_experiment_runs_from_can_go(
    original: SmallEnvironment, tmp_path: Path
) -> None:
    path, data, _ = snapshot(original, tmp_path)
    assert unused(tmp_path, [], days=0) == [path]
    assert unused(tmp_path, [], days=1) == []
    experiment = Experiment(experiment_on(tmp_path, path, data))
    assert unused(tmp_path, [experiment], days=0) == []
    for state, found in (("incomplete", []), ("cancelled", []), ("done", [path])):
        write_json(experiment.outcome_file, {"round": 0, "state": state})
        assert unused(tmp_path, [experiment], days=0) == found


def test_a_copy_that_is_wanted_again_is_not_old(original: SmallEnvironment, tmp_path: Path) -> None:
    path, _, _ = snapshot(original, tmp_path)
    os.utime(path, (0, 0))
    assert unused(tmp_path, [], days=1) == [path]
    snapshot(original, tmp_path)
    assert unused(tmp_path, [], days=1) == []
