"""A job runs in the environment that submitted, or says what changed and ends."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import read_lines
from hpcbench.installed import normal, own
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
    ("now", "told"),
    [
        (BEFORE, []),
        (with_installed(pydantic=installed("2.7", "bb")), ["pydantic 2.6 → 2.7"]),
        (with_installed(pydantic=installed("2.6", "bb")), ["pydantic 2.6 was installed anew"]),
        (with_installed(numpy=None), ["numpy is gone"]),
        (with_installed(jupyter=installed("7.0")), ["jupyter 7.0 is new"]),
        (with_installed(mpi4py=installed("4", place="/modules/lib")), []),
        (
            with_installed(numpy=installed("1.26", place="/modules/lib")),
            ["numpy comes from /modules/lib"],
        ),
        (replace(BEFORE, python="3.11.9"), ["Python 3.11.7 → 3.11.9"]),
        (
            replace(BEFORE, executable="/other/bin/python"),
            ["/env/bin/python → /other/bin/python"],
        ),
        (
            replace(BEFORE, sources={"hpcbench/worker/process.py": "33", "hpcbench/new.py": "1"}),
            [
                "hpcbench/cli/main.py is gone",
                "hpcbench/new.py is new",
                "hpcbench/worker/process.py differs",
            ],
        ),
    ],
)
def test_what_changed_is_named(now: Fingerprint, told: list[str]) -> None:
    assert BEFORE.changes(now) == told
    assert (now.digest == BEFORE.digest) == (now == BEFORE)


def test_of_many_changes_a_few_are_named_and_the_rest_is_counted() -> None:
    many = {f"hpcbench/{number}.py": "1" for number in range(40)}
    changes = replace(BEFORE, sources=many).changes(replace(BEFORE, sources={}))
    assert changes[-1] == "and 35 more files"
    assert len(changes) == fingerprint.TOLD + 1


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
    probe_of_element.calls.clear()
    return probe_of_element.calls  # type: ignore[no-any-return]


@pytest.mark.parametrize("known", [True, False], ids=["same", "written by an earlier version"])
def test_in_the_same_environment_a_job_goes_on(
    tmp_path: Path, called: list[list[str]], known: bool
) -> None:
    experiment = experiment_of(tmp_path, fingerprint.here() if known else None)
    ArrayTask("probe_of_element", str(experiment.path), "g0")()
    assert called == [[str(experiment.path), "g0"]]
    assert experiment.worker_event_files() == []


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
    assert "pydantic 2.5 → " in trouble["message"]
    assert "hpcbench/worker/process.py differs" in trouble["message"]
    assert "hpcbench resume" in trouble["message"]
    assert trouble["message"] in capsys.readouterr().err
    (file,) = experiment.worker_event_files()
    assert file.name == "probe_of_element.4711_3-0.events.jsonl"
    assert [event["seq"] for event in read_lines(file)] == [1, 2]


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


def test_a_copy_that_was_removed_is_told(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path, None, snapshot=str(tmp_path / "gone"))
    with pytest.raises(EnvironmentFault, match="that is gone.*submit its plan anew"):
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
    assert "mode 0755" in next(worker_runs(experiment)).troubles[0]["message"]
    assert len(called) == 1


def test_what_pip_sets_aside_while_it_installs_is_no_distribution(tmp_path: Path) -> None:
    for name in ("pydantic-2.6.dist-info", "~ydantic-2.5.dist-info"):
        (tmp_path / name).mkdir()
    found = [name for name, _, _ in fingerprint.metadata_folders(str(tmp_path))]
    assert found == ["pydantic"]
