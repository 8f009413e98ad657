"""Secrets reach jobs that inherit nothing, through one file that its owner alone can read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.site import Site
from hpcbench.submit import secrets_file
from tests.unit import small

VALUE = "s3cr3t-of-the-test"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_EXPORT", "HF_TOKEN", "JUDGE_KEY", "HOOK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(secret, "_revealed", set())


def experiment_of(
    root: Path, executor: str = "slurm", model_env: dict[str, str] | None = None, **site: Any
) -> Experiment:
    plan = small.resolved(small.run_task(model={"env": model_env or {}}))
    profile = Site.model_validate({"name": "default", "executor": executor, **site})
    plan = plan.model_copy(update={"site": profile})
    assert plan.executor == executor
    experiment = Experiment(root / "home" / "experiments" / "20261122-0000-small-abcd")
    experiment.path.mkdir(parents=True)
    experiment.resolved_file.write_text(plan.model_dump_json())
    experiment.manifest_file.write_text("{}")
    return experiment


def closed(root: Path, **site: Any) -> Experiment:
    """An experiment of a model that needs a key, on a cluster that hands jobs no environment."""
    return experiment_of(
        root,
        model_env={"API_KEY": "${env:JUDGE_KEY}"},
        slurm={"options": {"export": "NONE"}},
        **site,
    )


def file_of(experiment: Experiment) -> Path:
    return experiment.path.parent.parent / "secrets" / f"{experiment.id}.json"


def test_a_job_without_the_environment_finds_what_the_plan_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    assert secrets_file.keep(experiment) == ("JUDGE_KEY",)
    monkeypatch.delenv("JUDGE_KEY")
    assert secrets_file.load(experiment) == ("JUDGE_KEY",)
    assert os.environ["JUDGE_KEY"] == VALUE
    assert secret.mask(f"401: {VALUE}") == "401: ***"
    monkeypatch.delenv("JUDGE_KEY")


def test_no_other_user_can_read_it_whatever_the_umask_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    before = os.umask(0)
    try:
        secrets_file.keep(experiment)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file_of(experiment).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(experiment).parent.stat().st_mode) == 0o700
    assert [path.name for path in file_of(experiment).parent.iterdir()] == [f"{experiment.id}.json"]
    for path in experiment.path.rglob("*"):
        assert path.is_dir() or VALUE not in path.read_text()


def test_only_what_is_referred_to_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    monkeypatch.setenv("HF_TOKEN", "another")
    secrets_file.keep(experiment)
    assert json.loads(file_of(experiment).read_text())["variables"] == {"JUDGE_KEY": VALUE}


@pytest.mark.parametrize("export", [None, "ALL", "ALL,MORE=1"])
def test_jobs_that_inherit_need_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: str | None
) -> None:
    options = {} if export is None else {"export": export}
    experiment = experiment_of(
        tmp_path, model_env={"API_KEY": "${env:JUDGE_KEY}"}, slurm={"options": options}
    )
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    assert secrets_file.keep(experiment) == ()
    assert not file_of(experiment).parent.exists()


def test_sbatch_export_of_the_shell_counts_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_of(tmp_path, model_env={"API_KEY": "${env:JUDGE_KEY}"})
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    assert secrets_file.keep(experiment) == ("JUDGE_KEY",)


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_references_in_the_environment_of_the_site_go_the_same_way(
    tmp_path: Path, executor: str
) -> None:
    (tmp_path / "token").write_text(VALUE + "\n")
    env = {"HF_TOKEN": f"${{file:{tmp_path}/token}}", "https_proxy": "http://proxy:3128"}
    experiment = experiment_of(tmp_path, executor=executor, env=env)
    assert secrets_file.keep(experiment) == ("HF_TOKEN",)
    secrets_file.load(experiment)
    assert os.environ.pop("HF_TOKEN") == VALUE


def test_a_secret_that_is_missing_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    experiment = closed(tmp_path)
    with pytest.raises(UserError, match=r"\$\{env:JUDGE_KEY\}.*export it before you submit"):
        secrets_file.keep(experiment)
    with pytest.raises(UserError, match="env of model"):
        secrets_file.require(experiment.resolved)
    assert not file_of(experiment).exists()


def test_a_job_that_submits_the_next_ones_keeps_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    secrets_file.keep(experiment)
    monkeypatch.delenv("JUDGE_KEY")
    assert secrets_file.keep(experiment) == ("JUDGE_KEY",)
    assert VALUE in file_of(experiment).read_text()


def test_resume_writes_the_value_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = closed(tmp_path)
    for value in (VALUE, "renewed-since"):
        monkeypatch.setenv("JUDGE_KEY", value)
        secrets_file.keep(experiment)
    assert json.loads(file_of(experiment).read_text())["variables"]["JUDGE_KEY"] == "renewed-since"


def test_the_end_of_an_experiment_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    assert not secrets_file.forget(experiment)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    secrets_file.keep(experiment)
    assert secrets_file.forget(experiment)
    assert not file_of(experiment).exists()
    assert secrets_file.load(experiment) == ()


def test_what_is_left_over_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    secrets_file.keep(experiment)
    half, gone = (file_of(experiment).with_name(name) for name in (".x.json.a1b2", "gone.json"))
    for path in (half, gone):
        path.touch()
    root = tmp_path / "home"
    assert secrets_file.leftovers(root, lambda one: False) == [half, gone]
    assert set(secrets_file.leftovers(root, lambda one: True)) == {half, gone, file_of(experiment)}
    assert secrets_file.leftovers(tmp_path / "none", lambda one: True) == []


def spoil_file_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.json")
    path.symlink_to(path.parent.parent / "elsewhere.json")


def spoil_folder_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(path.parent.with_name("moved"))


def spoil_file_mode(path: Path) -> None:
    path.chmod(0o640)


def spoil_folder_mode(path: Path) -> None:
    path.parent.chmod(0o750)


def spoil_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "spoil",
    [spoil_file_link, spoil_folder_link, spoil_file_mode, spoil_folder_mode, spoil_fifo],
)
def test_a_link_or_a_file_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    experiment = closed(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    secrets_file.keep(experiment)
    spoil(file_of(experiment))
    with pytest.raises(EnvironmentFault, match="secrets of jobs") as caught:
        secrets_file.load(experiment)
    assert VALUE not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_users_of_one_home_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = closed(tmp_path)
    file_of(experiment).parent.mkdir(mode=0o700)
    os.chown(file_of(experiment).parent, 1234, 1234)
    monkeypatch.setenv("JUDGE_KEY", VALUE)
    secrets_file.keep(experiment)
    mine = tmp_path / "home" / f"secrets-{os.geteuid()}" / f"{experiment.id}.json"
    assert VALUE in mine.read_text()
    assert list(file_of(experiment).parent.iterdir()) == []
