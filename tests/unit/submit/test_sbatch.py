"""Arguments of sbatch: each field of a site profile in the job script; what survives bash, or is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.resume.last_job import DEFAULT
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from hpcbench.submit.sbatch import FIND_MODULES, clean_environment, parameters, sbatch_text, setup
from tests.campaign import examples
from tests.conftest import ROOT
from tests.unit.small import resolved, run_task


def plan_at(**site: Any) -> ResolvedPlan:
    """A plan of one run task at a site."""
    profile = Site.model_validate({"name": "default", "executor": "slurm", **site})
    return resolved(run_task()).model_copy(update={"site": profile})


def group_of(plan: ResolvedPlan, gpus: int = 2, **resources: Any) -> Group:
    need = replace(JobResources.of(plan.run_tasks[0].task.resources), **resources)
    return Group(
        id="g0", image=None, gpus=gpus, resources=need, run_tasks=("rt",), workers=3, throttle=2
    )


def script(gpus: int = 2, resources: dict[str, Any] | None = None, **site: Any) -> str:
    plan = plan_at(**site)
    return sbatch_text(Path("/e/ID"), plan, group_of(plan, gpus, **(resources or {})))


def options(text: str) -> list[str]:
    return [line[10:] for line in text.splitlines() if line.startswith("#SBATCH --")]


def added(before: dict[str, Any], **slurm: Any) -> list[str]:
    """The options that a field of `slurm` adds to those of a bare profile."""
    bare = options(script(slurm=before))
    return [one for one in options(script(slurm={**before, **slurm})) if one not in bare]


# --- golden texts -----------------------------------------------------------------------------------


def test_a_bare_site_gives_a_script_of_options_and_one_command() -> None:
    assert script() == (
        "#!/bin/bash\n\n# Parameters\n"
        "#SBATCH --array=0-2%2\n"
        "#SBATCH --comment=hpcbench:ID:g0.0\n"
        "#SBATCH --cpus-per-task=2\n"
        "#SBATCH --gres=gpu:2\n"
        "#SBATCH --job-name=hpcbench:ID:g0.0\n"
        "#SBATCH --mem=8192M\n"
        "#SBATCH --nodes=1\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --output=/e/ID/jobs/%A_%a_0_log.out\n"
        "#SBATCH --requeue\n"
        "#SBATCH --signal=B:USR2@90\n"
        "#SBATCH --time=120\n"
        "#SBATCH --wckey=submitit\n"
        "\n# command\n"
        "export SUBMITIT_EXECUTOR=slurm\n"
        f"exec {shlex.quote(sys.executable)} -u -m hpcbench.submit.job_start"
        " -u -m submitit.core._submit /e/ID/jobs\n"
    )


def test_slurm_warns_only_workers_of_their_time_limit() -> None:
    # That of submitit reaches steps, which the job does not have.
    assert "#SBATCH --signal=USR2@90\n" in sbatch_text(Path("/e/ID"), plan_at(), None)


@pytest.mark.parametrize(
    ("slurm", "line"),
    [
        ({"partition": "gpu"}, "partition=gpu"),
        ({"account": "docs"}, "account=docs"),
        ({"qos": "long"}, "qos=long"),
        ({"reservation": "maintenance day"}, "reservation='maintenance day'"),
        ({"constraint": "a100|h100"}, "constraint='a100|h100'"),
        ({"gpu_gres": "gpu:a100"}, "gres=gpu:a100:2"),
        ({"gpu_option": "gpus"}, "gpus=2"),
        ({"gpu_option": "gpus", "gpu_gres": "gpu:a100"}, "gpus=a100:2"),
        ({"gpu_option": "gpus-per-node", "gpu_gres": "gpu:a100"}, "gpus-per-node=a100:2"),
        ({"drain_seconds": 120}, "signal=B:USR2@120"),
        ({"options": {"exclusive": True}}, "exclusive"),
        ({"options": {"nice": 0}}, "nice=0"),
        ({"options": {"hint": "nomultithread"}}, "hint=nomultithread"),
    ],
)
def test_a_field_of_the_profile_is_one_option(slurm: dict[str, Any], line: str) -> None:
    assert added({}, **slurm) == [line]


def test_the_type_of_gpu_that_a_run_task_names_counts_more_than_the_sites() -> None:
    text = script(resources={"gpu_type": "h100"}, slurm={"gpu_gres": "gpu:a100"})
    assert "#SBATCH --gres=gpu:h100:2\n" in text
    text = script(
        resources={"gpu_type": "h100"}, slurm={"gpu_gres": "gpu:a100", "gpu_option": "gpus"}
    )
    assert "#SBATCH --gpus=h100:2\n" in text


def test_a_job_without_gpus_asks_for_none_in_any_spelling() -> None:
    for option in ("gres", "gpus", "gpus-per-node"):
        assert "gpu" not in script(0, slurm={"gpu_gres": "gpu:a100", "gpu_option": option})


def test_options_of_the_site_win_over_hpcbenchs_however_they_are_written() -> None:
    said = {"cpus-per-task": 9, "mem_per_cpu": "2G", "gres": "gpu:2,nvme:100", "requeue": False}
    listed = options(script(slurm={"options": said}))
    assert [one for one in listed if one.startswith(("cpus", "mem-per", "gres", "requeue"))] == [
        "cpus-per-task=9",
        "gres=gpu:2,nvme:100",
        "mem-per-cpu=2G",
    ]


def test_a_job_in_the_cpu_partition_asks_for_no_features_of_the_workers_nodes() -> None:
    site = {
        "partition": "gpu", "cpu_partition": "cpu", "constraint": "a100", "reservation": "r",
        "account": "docs",
    }  # fmt: skip
    found = parameters(plan_at(slurm=site), DEFAULT, 0, "last", ["12", "13"])
    assert (found["partition"], found["account"]) == ("cpu", "docs")
    assert found["dependency"] == "afterany:12:13"
    assert not {"constraint", "reservation", "gres"} & {*found, *found["additional_parameters"]}
    without = plan_at(slurm={**site, "cpu_partition": None})
    found = parameters(without, DEFAULT, 0, "last", ["12"])
    assert found["partition"] == "gpu"
    assert found["additional_parameters"]["constraint"] == "a100"


def test_a_worker_that_waits_for_another_group_stays_in_the_workers_partition() -> None:
    plan = plan_at(slurm={"partition": "gpu", "cpu_partition": "cpu"})
    group = group_of(plan)
    found = parameters(plan, group.resources, 2, "w", ["12"], group=group)
    assert (found["partition"], found["dependency"]) == ("gpu", "afterany:12")


def test_lines_before_python_stand_in_their_order() -> None:
    plan = plan_at(
        umask="027", modules=["gcc/13", "apptainer"], setup=["module use /apps/modules"],
        env={"https_proxy": "http://proxy:3128"}, slurm={"template": "default"},
    )  # fmt: skip
    assert setup(plan, group_of(plan)) == [
        "umask 027",
        FIND_MODULES,
        "module use /apps/modules",
        "module load gcc/13 || { echo 'hpcbench: cannot load module gcc/13 on this node' >&2; exit 3; }",
        "module load apptainer || "
        "{ echo 'hpcbench: cannot load module apptainer on this node' >&2; exit 3; }",
        "export https_proxy=http://proxy:3128",
        'echo "hpcbench: plan, g0, on ${SLURMD_NODENAME:-$(hostname)}"',
    ]


def test_a_reference_to_a_secret_is_not_in_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_tell_tale")
    text = script(env={"HF_TOKEN": "${env:HF_TOKEN}", "PLAIN": "yes"})
    assert "HF_TOKEN" not in text
    assert "tell_tale" not in text
    assert "export PLAIN=yes\n" in text


# --- quoting ----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)  # surrogates too
NAME = st.from_regex(r"\AV[A-Za-z0-9_]{0,8}\Z")


@pytest.mark.long
@settings(max_examples=examples(60))
@given(env=st.dictionaries(NAME, TEXT, max_size=4))
def test_any_environment_survives_bash_to_the_last_byte_or_is_refused(env: dict[str, str]) -> None:
    if any(_unfit(value) for value in env.values()):
        with pytest.raises(UserError, match="a job script cannot contain"):
            setup(plan_at(env=env))
        return
    lines = setup(plan_at(env=env))
    say = "import json, os; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        ["bash"],
        input="\n".join([*lines, f"exec {sys.executable} -S -E -c {shlex.quote(say)}"]).encode(),
        capture_output=True, check=True, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert {name: found[name] for name in env} == env


@settings(max_examples=examples(40))
@given(name=TEXT)
def test_any_name_reaches_module_as_it_is_or_is_refused(name: str) -> None:
    if not name or name.startswith("-") or _unfit(name) or any(map(str.isspace, name)):
        with pytest.raises(UserError, match="site profile: modules.0"):
            setup(plan_at(modules=[name]))
        return
    lines = setup(plan_at(modules=[name]))
    (load,) = [line for line in lines if line.startswith("module load")]
    fake = 'module() { printf "%s\\0" "$@"; }'
    done = subprocess.run(
        ["bash"], input=f"{fake}\n{load}".encode(), capture_output=True, check=True
    )
    assert done.stdout.decode().split("\0")[:-1] == ["load", name]


def _unfit(value: str) -> bool:
    return any(mark in value for mark in "\n\r\0") or any(
        "\ud800" <= one <= "\udfff" for one in value
    )


@pytest.mark.parametrize(
    "slurm",
    [
        {"account": "docs\n#SBATCH --uid=0"},
        {"constraint": "a\nrm -rf /"},
        {"options": {"comment-on": "a\nb"}},
        {"qos": "a\0"},
    ],
)
def test_no_value_can_become_a_second_line(slurm: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="a job script cannot contain"):
        script(slurm=slurm)


def test_what_a_plan_says_can_become_no_second_line_either() -> None:
    with pytest.raises(UserError, match="--partition: a job script cannot contain a line break"):
        script(resources={"partition": "gpu\nreboot"})


@pytest.mark.parametrize(
    ("line", "why"),
    [('echo "open', "unexpected EOF"), ("echo a \\", "its last line ends with a backslash"),
     ("cat <<END", "here-document"), ("if true", "syntax error")],
)  # fmt: skip
def test_lines_that_would_swallow_the_command_after_them_are_refused(line: str, why: str) -> None:
    with pytest.raises(UserError, match=f"the job script is not valid shell code: .*{why}"):
        script(setup=[line])


# --- templates --------------------------------------------------------------------------------------


def with_template(folder: Path, text: str, **site: Any) -> ResolvedPlan:
    path = folder / "own.j2"
    path.write_text(text)
    return plan_at(slurm={"template": str(path), "account": "docs"}, **site)


def test_a_template_sees_site_group_and_plan(tmp_path: Path) -> None:
    plan = with_template(
        tmp_path,
        "{% if group and group.gpus %}\necho {{ group.id }} {{ group.gpus }} {{ site.slurm.account }}\n"
        "{% endif %}\n# {{ plan.name }}\n",
    )
    assert setup(plan, group_of(plan))[-2:] == ["echo g0 2 docs", "# plan"]
    assert setup(plan, None) == ["# plan"]


def test_the_template_of_the_cluster_guide_makes_shell_lines(tmp_path: Path) -> None:
    page = (ROOT / "docs/cluster-guide.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```text\n(\{%.*?)```", page, re.DOTALL)
    plan = with_template(tmp_path, text)
    lines = setup(plan, group_of(plan))
    assert "export NCCL_DEBUG=WARN" in lines
    assert lines[-1] == f'echo "{plan.plan.name} charges docs"'
    assert "export NCCL_DEBUG=WARN" not in setup(plan)


@pytest.mark.parametrize(
    ("limit", "minutes"), [("00:00:30", 1), ("00:02:59", 2), ("1-00:00:00", 1440)]
)
def test_a_time_limit_is_said_in_whole_minutes_and_never_0_which_slurm_reads_as_none(
    limit: str, minutes: int
) -> None:
    assert f"time={minutes}" in options(script(resources={"time_limit": limit}))


def test_variables_of_an_outer_job_are_gone_while_sbatch_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outer = ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "SBATCH_PARTITION", "SUBMITIT_EXECUTOR")
    for name in (*outer, "SLURM_CONF", "HOME_OF_SLURM_"):
        monkeypatch.setenv(name, "x")
    with clean_environment():
        assert not set(outer) & set(os.environ)
        assert os.environ["SLURM_CONF"] == os.environ["HOME_OF_SLURM_"] == "x"
    assert set(outer) <= set(os.environ)


def test_a_mistake_in_an_included_template_is_reported_there(tmp_path: Path) -> None:
    (tmp_path / "part.j2").write_text("echo\n{{ 1 // 0 }}\n")
    with pytest.raises(UserError, match=f"^{tmp_path}/part.j2:2: template: integer division"):
        setup(with_template(tmp_path, "\n\n\n{% include 'part.j2' %}\n"))


def test_a_template_includes_another_beside_it(tmp_path: Path) -> None:
    (tmp_path / "part.j2").write_text("echo {{ plan.name }}\n")
    assert setup(with_template(tmp_path, "{% include 'part.j2' %}\n")) == ["echo plan"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("# fine\n{{ site.acount }}\n", "{path}:2: template: 'Site object' has no attribute 'acount'"),
        ("\n\n{{ nobody }}\n", "{path}:3: template: 'nobody' is undefined"),
        ("a\n{% if %}\n", "{path}:2: template: Expected an expression"),
        ("{{ 1 // 0 }}", "{path}:1: template: integer division or modulo by zero"),
        ("{{ site.__class__.__mro__ }}", "{path}:1: template: access to attribute '__class__'"),
        ("{% include 'gone.j2' %}", "{path}:1: template: 'gone.j2' not found in"),
        ("echo\n#SBATCH --mem=1\n", "{path}: line 2 of its output is an sbatch option"),
        ("echo {{ '\\0' }}", "{path}: line 1 of its output: a job script cannot contain a NUL"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_template_is_reported_at_its_line(
    tmp_path: Path, text: str, reported: str
) -> None:
    plan = with_template(tmp_path, text)
    with pytest.raises(UserError) as caught:
        setup(plan, group_of(plan))
    problem = str(caught.value)
    expected = reported.format(path=tmp_path / "own.j2")
    assert problem.replace("hpcbench.schema.site.", "").startswith(expected), problem


@pytest.mark.long
@pytest.mark.parametrize("name", ["default", "local_scratch", "node_facts"])
def test_the_shipped_templates_run_in_a_job(name: str, tmp_path: Path) -> None:
    plan = plan_at(slurm={"template": name}, env={"LOCAL_DISK": str(tmp_path)})
    for group in (group_of(plan), None):
        script = "\n".join(["set -u", *setup(plan, group), "echo reached"])
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("reached\n")


def test_a_template_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"unknown template 'defualt' \(did you mean 'default'\?\)"):
        script(slurm={"template": "defualt"})
    with pytest.raises(UserError, match="/nowhere/x.j2: no such file"):
        script(slurm={"template": "/nowhere/x.j2"})


def test_a_users_template_of_a_shipped_name_is_taken_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "hpcbench" / "slurm_templates"
    own.mkdir(parents=True)
    (own / "default.j2").write_text("echo mine\n")
    assert setup(plan_at(slurm={"template": "default"})) == ["echo mine"]
