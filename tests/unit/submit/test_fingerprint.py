"""A job runs in the environment that submitted, or says what changed and ends."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import read_lines
from hpcbench.installed import normal, own
from hpcbench.reporting.provenance import _later_environments
from hpcbench.submit import fingerprint, secrets_file
from hpcbench.submit.array_task import EXIT_ENVIRONMENT, ArrayTask
from hpcbench.submit.fingerprint import Distribution, Fingerprint
from tests.unit import small


def installed(version: str = "2.6", digest: str = "aa", place: str = "/env/lib") -> Distribution:
    return Distribution(version, digest, place)


BEFORE = Fingerprint(
    "3.11.7",
    "/env/bin/python",
    "linux-x86_64",
    ("/env/lib",),
    {"pydantic": installed(), "numpy": installed("1.26")},
    {"hpcbench/worker/process.py": "11", "hpcbench/cli/main.py": "22"},
)


def with_installed(**changed: Distribution | None) -> Fingerprint:
    known = {**BEFORE.distributions, **changed}
    return replace(BEFORE, distributions={key: one for key, one in known.items() if one})


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        (BEFORE, []),
        (with_installed(pydantic=installed("2.7", "bb")), ["pydantic 2.6 → 2.7"]),
        (with_installed(pydantic=installed("2.6", "bb")), ["pydantic 2.6 was reinstalled"]),
        (with_installed(numpy=None), ["numpy was removed"]),
        (with_installed(jupyter=installed("7.0")), ["jupyter 7.0 is new"]),
        (with_installed(mpi4py=installed("4", place="/modules/lib")), []),
        (with_installed(numpy=installed("1.26", place="/modules/lib")),
         ["numpy now comes from /modules/lib"]),
        (replace(BEFORE, python="3.11.9"), ["Python 3.11.7 → 3.11.9"]),
        (replace(BEFORE, executable="/other/bin/python"), ["/env/bin/python → /other/bin/python"]),
        (
            replace(BEFORE, sources={"hpcbench/worker/process.py": "33", "hpcbench/new.py": "1"}),
            [
                "hpcbench/cli/main.py was removed",
                "hpcbench/new.py is new",
                "hpcbench/worker/process.py differs",
            ],
        ),
    ],
)  # fmt: skip
def test_what_changed_is_named(now: Fingerprint, reported: list[str]) -> None:
    assert BEFORE.changes(now) == reported
    assert (now.digest == BEFORE.digest) == (now == BEFORE)


def test_of_many_changes_a_few_are_named_and_the_rest_is_counted() -> None:
    many = {f"hpcbench/{number}.py": "1" for number in range(40)}
    changes = replace(BEFORE, sources=many).changes(replace(BEFORE, sources={}))
    assert changes[-1] == "and 35 more files"
    assert len(changes) == fingerprint.MOST_SHOWN + 1


texts = st.text("ab.-/", min_size=1, max_size=4)
fingerprints = st.builds(
    Fingerprint,
    texts, texts, texts,
    st.lists(texts, max_size=2).map(tuple),
    st.dictionaries(texts, st.builds(Distribution, texts, texts, texts), max_size=4),
    st.dictionaries(texts, texts, max_size=4),
)  # fmt: skip


@given(fingerprints, fingerprints)
def test_an_environment_is_the_same_as_itself_and_survives_the_manifest(
    one: Fingerprint, other: Fingerprint
) -> None:
    stored = Fingerprint.from_json(json.loads(json.dumps(one.to_json())))
    assert stored == one
    assert one.changes(stored) == []
    if not one.changes(other) and not other.changes(one):
        assert one.sources == other.sources


def test_this_environment_is_seen() -> None:
    now = fingerprint.here()
    assert now == fingerprint.here()
    assert {"pydantic", normal(own().name), "submitit"} <= set(now.distributions)
    assert "hpcbench/worker/process.py" in now.sources
    assert not [name for name in now.sources if name.startswith("hpcbench/portal/")]
    assert now.executable == sys.executable


def test_packages_of_a_plan_are_not_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wanted-1.0.dist-info").mkdir()
    (tmp_path / "wanted-1.0.dist-info" / "RECORD").write_text("x")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert "wanted" in fingerprint.here().distributions
    assert "wanted" not in fingerprint.here(tmp_path).distributions


def test_a_checkout_is_read_but_for_what_tools_put_there(tmp_path: Path) -> None:
    for name in ("pkg/a.py", "pkg/__pycache__/a.py", ".git/b.py", "env/c.py", "data/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert [str(path.relative_to(tmp_path)) for path in fingerprint.sources_of(tmp_path)] == [
        "pkg/a.py"
    ]


# --- what a job does with it ------------------------------------------------------------------------------


def experiment_of(root: Path, seen: Fingerprint | None, **more: Any) -> Experiment:
    experiment = small.experiment(root, [small.record(1)])
    manifest = {**json.loads(experiment.manifest_file.read_text()), **more}
    manifest["fingerprint"] = seen.to_json() if seen else None
    experiment.manifest_file.write_text(json.dumps(manifest))
    return Experiment(experiment.path)


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of every call of the module `probe_of_element`."""
    (tmp_path / "probe_of_element.py").write_text("calls = []\nmain = calls.append\n")
    monkeypatch.syspath_prepend(tmp_path)
    import probe_of_element  # type: ignore[import-not-found]

    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    # A job changes them for its own child processes.
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONNOUSERSITE", os.environ.get("PYTHONNOUSERSITE", ""))
    probe_of_element.calls.clear()
    return probe_of_element.calls  # type: ignore[no-any-return]


@pytest.mark.parametrize("known", [True, False], ids=["same", "written by an earlier version"])
def test_in_the_same_environment_a_job_goes_on(
    tmp_path: Path, called: list[list[str]], known: bool
) -> None:
    experiment = experiment_of(tmp_path, fingerprint.here() if known else None)
    ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert called == [[str(experiment.path), "g0"]]
    assert not [*experiment.workers_dir.glob("*.events.jsonl")]


def test_only_the_programs_of_a_copied_environment_are_kept_off_the_original_one(
    tmp_path: Path, called: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    (copy / "bin").mkdir(parents=True)
    (copy / "bin" / "python").touch()
    for name, more, kept in (("a", {}, True), ("b", {"snapshot": str(copy)}, False)):
        monkeypatch.setenv("PYTHONPATH", "/mine")
        monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
        experiment = experiment_of(tmp_path / name, None, **more)
        ArrayTask("probe_of_element", str(experiment.path), "g0")()
        assert (os.environ.get("PYTHONPATH") == "/mine") is kept
        assert ("PYTHONNOUSERSITE" not in os.environ) is kept


def test_in_another_one_it_says_what_changed_and_claims_nothing(
    tmp_path: Path, called: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = fingerprint.here()
    older = replace(seen.distributions["pydantic"], version="2.5")
    seen = replace(
        seen,
        distributions={**seen.distributions, "pydantic": older},
        sources={**seen.sources, "hpcbench/worker/process.py": "other"},
    )
    experiment = experiment_of(tmp_path, seen)
    with pytest.raises(SystemExit) as end:
        ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert end.value.code == EXIT_ENVIRONMENT == 3
    assert called == []
    (worker,) = worker_runs(experiment)
    assert worker.last_words == "failed"
    (trouble,) = worker.troubles
    assert "pydantic 2.5 → " in trouble.message
    assert "hpcbench/worker/process.py differs" in trouble.message
    assert "hpcbench resume" in trouble.message
    assert trouble.message in capsys.readouterr().err
    (file,) = experiment.workers_dir.glob("*.events.jsonl")
    assert file.name == "probe_of_element.4711_3-0.events.jsonl"
    assert [event["seq"] for event in read_lines(file)] == [1, 2]


# --- an upgrade of hpcbench ---------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout with a package `hpcbench` of two commits, from which hpcbench seems to run."""
    made = Checkout(tmp_path / "checkout")
    monkeypatch.setattr(fingerprint.hpcbench, "__file__", str(made.package / "__init__.py"))
    return made


class Checkout:
    """A git repository with a package `hpcbench`."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "hpcbench"
        self.package.mkdir(parents=True)
        self._git("init", "-q")
        self.first = self.commit("first")
        self.second = self.commit("second")

    def commit(self, content: str) -> str:
        """Commit the package with one file of this content; the commit's name."""
        (self.package / "__init__.py").write_text(f"# {content}\n")
        self._git("add", ".")
        self._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", content)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        command = ["git", "-C", str(self.package.parent), *words]
        return subprocess.run(
            command, check=True, text=True, stdout=subprocess.PIPE, env=environ
        ).stdout


def upgraded(root: Path, commit: str | None, dirty: bool = False, **manifest: Any) -> Experiment:
    """An experiment that another hpcbench, of that commit, submitted in this environment."""
    seen = fingerprint.here()
    seen = replace(seen, sources={**seen.sources, "hpcbench/__init__.py": "of then"})
    git = {"hpcbench": {"commit": commit, "dirty": dirty} if commit else None}
    given = {"hpcbench": "0.1.0", "version": 1, "git": git, **manifest}
    experiment = experiment_of(root, seen, **given)
    with EventLog(experiment.submission_file) as log:
        log.write("round", round=0, groups=[])
    return Experiment(experiment.path)


def test_under_a_later_commit_a_job_goes_on_and_writes_the_change_down_once(
    tmp_path: Path, called: list[list[str]], checkout: Checkout
) -> None:
    experiment = upgraded(tmp_path, checkout.first)
    for _ in range(2):
        ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert len(called) == 2
    assert not [*experiment.workers_dir.glob("*.events.jsonl")]
    (line,) = experiment.environments()
    assert line["changes"] == ["hpcbench/__init__.py differs"]
    assert sorted(line) == ["changes", "fingerprint", "time"]
    assert not experiment.environments_file.with_suffix(".lock").exists()
    ((since, what),) = _later_environments(experiment)
    assert since.startswith("environment since 20")
    assert what == "hpcbench/__init__.py differs"


@pytest.mark.long
def test_jobs_that_start_at_once_write_one_line(tmp_path: Path, checkout: Checkout) -> None:
    experiment = upgraded(tmp_path, checkout.first)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fingerprint.stops_jobs(experiment), range(8)))
    assert found == [[]] * 8
    assert len(list(experiment.environments())) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        "another branch", "uncommitted", "uncommitted then", "no commit then", "later format",
        "later version", "plan of a later version", "a package too",
    ],
)  # fmt: skip
def test_what_is_no_upgrade_stops_jobs(tmp_path: Path, checkout: Checkout, case: str) -> None:
    manifest: dict[str, Any] = {
        "later format": {"version": 2},
        "later version": {"hpcbench": "99.0"},
    }.get(case, {})
    commit: str | None = checkout.first
    if case == "another branch":
        commit = "0" * 40
    if case == "no commit then":
        commit = None
    experiment = upgraded(tmp_path, commit, dirty=case == "uncommitted then", **manifest)
    if case == "uncommitted":
        (checkout.package / "__init__.py").write_text("# half a git pull\n")
    if case == "plan of a later version":
        data = json.loads(experiment.resolved_file.read_text())
        experiment.resolved_file.write_text(json.dumps({**data, "of_later": 1}))
    if case == "a package too":
        seen = fingerprint.of_experiment(experiment)
        assert seen is not None
        older = replace(seen.distributions["pydantic"], version="2.5")
        seen = replace(seen, distributions={**seen.distributions, "pydantic": older})
        data = json.loads(experiment.manifest_file.read_text())
        experiment.manifest_file.write_text(json.dumps({**data, "fingerprint": seen.to_json()}))
    changes = fingerprint.stops_jobs(Experiment(experiment.path))
    assert "hpcbench/__init__.py differs" in changes
    assert not experiment.environments_file.exists()


def test_what_a_later_hpcbench_needs_may_be_new_and_its_name_another() -> None:
    before = replace(BEFORE, distributions={**BEFORE.distributions, "hpcbench": installed("0.1.0")})
    now = with_installed(**{"hpcbench-vlm": installed("0.2.0"), "argcomplete": installed("3.2")})
    now = replace(now, sources={"hpcbench/worker/other.py": "33"})
    assert before.only_hpcbench_differs(now, {"argcomplete", "pydantic"})
    assert not before.only_hpcbench_differs(now, {"pydantic"})
    assert not before.only_hpcbench_differs(replace(now, python="3.12.1"), {"argcomplete"})
    edited = replace(now, sources={**now.sources, "plugin/engine.py": "1"})
    assert not before.only_hpcbench_differs(edited, {"argcomplete"})
    newer = {**now.distributions, "pydantic": installed("2.7", "bb")}
    assert not before.only_hpcbench_differs(
        replace(now, distributions=newer), {"argcomplete", "pydantic"}
    )


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("", True),
        ("edited", False),
        ("gone", False),
        ("more", False),
        ("torn", False),
        ("not first", False),
    ],
)
def test_an_installation_is_whole_when_its_files_are_those_of_its_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, whole: bool
) -> None:
    site = tmp_path / "site"
    listed = {"hpcbench/__init__.py": b"", "hpcbench/a/b.py": b"1\n", "hpcbench/share/x.yaml": b"2"}
    lines = []
    for name, content in listed.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    metadata = site / "hpcbench_vlm-0.2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: hpcbench-vlm\nVersion: 0.2.0\n"
    )
    (metadata / "RECORD").write_text("".join(lines) + "hpcbench/__pycache__/a.pyc,,\n")
    if broken == "edited":
        (site / "hpcbench/share/x.yaml").write_text("3")
    if broken == "gone":
        (site / "hpcbench/a/b.py").unlink()
    if broken == "torn":  # pip is writing the list
        (metadata / "RECORD").write_text(f"{lines[0]}hpcbench/a")
    if broken == "more":
        (site / "hpcbench/a/c.py").touch()
    package = tmp_path / "elsewhere/hpcbench" if broken == "not first" else site / "hpcbench"
    monkeypatch.setattr(fingerprint.hpcbench, "__file__", str(package / "__init__.py"))
    found = PathDistribution(metadata)
    monkeypatch.setattr(fingerprint.installed, "own", lambda: found)
    assert fingerprint._is_installed(fingerprint.here()) == whole


# --- what people let go on ----------------------------------------------------------------------------------


@pytest.mark.long
def test_resume_goes_on_in_the_environment_of_today_and_writes_that_down(
    tmp_path: Path, called: list[list[str]]
) -> None:
    experiment = experiment_of(tmp_path, replace(fingerprint.here(), python="3.9.1"))
    (change,) = fingerprint.accept(experiment)
    assert change.startswith("Python 3.9.1 → ")
    assert fingerprint.accept(experiment) == []
    (line,) = read_lines(experiment.environments_file)
    assert line["changes"] == [change]
    ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert len(called) == 1


def test_a_worker_that_gives_up_says_so_as_one_of_its_group(
    tmp_path: Path, called: list[list[str]]
) -> None:
    seen = fingerprint.here()
    experiment = experiment_of(tmp_path, replace(seen, python="2.7.18"))
    with pytest.raises(SystemExit):
        ArrayTask("hpcbench.worker", str(experiment.path), "g0", "0", "0/1")()
    (file,) = experiment.workers_dir.glob("*.events.jsonl")
    assert file.name == "g0.4711_3-0.events.jsonl"


def test_a_copy_that_was_removed_is_reported(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path, None, snapshot=str(tmp_path / "gone"))
    with pytest.raises(EnvironmentFault, match="no longer exists.*submit its plan again"):
        fingerprint.interpreter(experiment)


def test_secrets_are_there_before_anything_else(
    tmp_path: Path, called: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-test")
    experiment = experiment_of(tmp_path, None)
    site = experiment.resolved.site.model_copy(
        update={"env": {"PROBE_TOKEN": f"${{file:{tmp_path}/token}}"}}
    )
    data = experiment.resolved.model_copy(update={"site": site})
    experiment.resolved_file.write_text(data.model_dump_json())
    secrets_file.keep(Experiment(experiment.path))
    monkeypatch.delenv("PROBE_TOKEN", raising=False)
    ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert os.environ.pop("PROBE_TOKEN") == "of-the-test"
    (tmp_path / "secrets").chmod(0o755)
    with pytest.raises(SystemExit):
        ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert "mode 0755" in next(worker_runs(experiment)).troubles[0].message
    assert len(called) == 1


def test_what_pip_sets_aside_while_it_installs_is_no_distribution(tmp_path: Path) -> None:
    for name in ("pydantic-2.6.dist-info", "~ydantic-2.5.dist-info"):
        (tmp_path / name).mkdir()
    found = [name for name, _, _ in fingerprint.metadata_folders(str(tmp_path))]
    assert found == ["pydantic"]
