"""`hpcbench init` and `doctor` before a fake Slurm: commands on PATH that print what a cluster printed.

On a real cluster: tests/slurm/test_site_real.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from hpcbench.cli.setup import _with_line
from hpcbench.errors import EnvironmentFault
from hpcbench.files.quotas import Quota
from hpcbench.schema.site import Site
from hpcbench.site.doctor import asking_job, checks, gpus_of_nodes, may_submit
from hpcbench.site.profile import (
    Choice,
    detect,
    in_words,
    module_of_containers,
    parse_associations,
)
from tests.unit.command import Cli

PARTITIONS = """\
PartitionName=cpu AllowAccounts=ALL Default=YES MaxTime=2-00:00:00 State=UP
PartitionName=gpu AllowAccounts=ALL Default=NO MaxTime=1-00:00:00 OverSubscribe=EXCLUSIVE State=UP
PartitionName=fast AllowAccounts=rich,docs Default=NO MaxTime=02:00:00 State=UP
PartitionName=closed AllowAccounts=rich Default=NO MaxTime=UNLIMITED State=UP
PartitionName=broken AllowAccounts=ALL Default=NO MaxTime=UNLIMITED State=DOWN
"""


class FakeSlurm:
    """Shell scripts that answer as Slurm's commands do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        nodes = [
            {"partitions": [name], "gres": gres, "cpus": 64, "real_memory": 512000}
            for name, gres in (
                ("cpu", ""), ("gpu", "gpu:a100:4(S:0)"), ("fast", "gpu:a100:8"),
                ("closed", "gpu:h100:8"), ("broken", "gpu:h100:8"),
            )
        ]  # fmt: skip
        self.answer("sinfo", json.dumps({"nodes": nodes, "errors": []}))
        self.script("scontrol", f"""
            case "$*" in
              *config*) echo 'MaxArraySize            = 1001' ;;
              *) cat <<'END'\n{PARTITIONS}END\n ;;
            esac""")  # fmt: skip
        self.accounts("docs|", "docs|")
        self.takes("--gres=")
        self.answer("squeue", json.dumps({"jobs": [], "errors": []}))

    def accounts(self, usual: str, *lines: str) -> None:
        """Lines of `account|maxsubmit`, and the default account."""
        listed = "\n".join(lines)
        self.script(
            "sacctmgr",
            f"""
            case "$*" in
              *assoc*) printf '%s\\n' '{listed}' ;;
              *) echo '{usual.rstrip("|")}' ;;
            esac""",
        )

    def takes(self, spelling: str) -> None:
        """sbatch takes GPUs in this spelling only."""
        self.script(
            "sbatch",
            f"""
            case "$*" in
              *--version*) echo 'slurm 22.05.8' ;;
              *--test-only*{spelling}*) echo 'sbatch: Job 7 to start' >&2 ;;
              *) echo 'sbatch: error: Invalid generic resource (gres) specification' >&2; exit 1 ;;
            esac""",
        )

    def answer(self, name: str, text: str) -> None:
        self.script(name, f"cat <<'END'\n{text}\nEND\n")

    def script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name in (
            "WORK", "SCRATCH", "TMPDIR", "HPCBENCH_HOME", "LMOD_VERSION", "MODULESHOME",
        ):  # fmt: skip
            monkeypatch.delenv(name)
    return FakeSlurm(folder)


class Asked:
    """Answers questions by their field and remembers them."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.questions: dict[str, tuple[list[str], str]] = {}

    def __call__(self, path: str, question: str, choices: Sequence[Choice], default: str) -> str:
        self.questions[path] = [choice.value for choice in choices], default
        return self.answers.get(path.rpartition(".")[2], default)


# --- what is asked, and what is not -----------------------------------------------------------------


def test_what_can_be_seen_is_not_asked(slurm: FakeSlurm) -> None:
    asked = Asked()
    said: list[str] = []
    site = detect(asked, said.append)
    assert list(asked.questions) == ["slurm.partition"]
    own = site.slurm
    assert (own.partition, own.cpu_partition, own.account) == ("fast", "cpu", "docs")
    assert (own.gpu_gres, own.gpu_option, own.max_array_size) == ("gpu:a100", "gres", 1001)
    assert own.partitions["gpu"].gpus == {"a100": 4}
    assert own.partitions["gpu"].whole_nodes and not own.partitions["cpu"].whole_nodes
    assert "account: docs, your only account" in said
    assert "partition: fast, one of 2 suitable" in said


def test_only_partitions_that_take_the_account_and_are_up_are_offered(slurm: FakeSlurm) -> None:
    slurm.accounts("poor", "poor|20", "docs|")
    said: list[str] = []
    asked = Asked(account="docs")
    detect(asked, said.append)
    assert asked.questions["slurm.account"] == (["poor", "docs"], "poor")
    assert asked.questions["slurm.partition"] == (["fast", "gpu"], "fast")
    assert "your limit of jobs in the queue: 20 (MaxSubmitJobs)" in said
    asked = Asked()
    assert detect(asked).slurm.partition == "gpu"
    assert "slurm.partition" not in asked.questions


def test_without_an_answer_of_the_accounting_any_account_can_be_said(slurm: FakeSlurm) -> None:
    slurm.script("sacctmgr", "echo 'connection refused' >&2; exit 1")
    assert detect(Asked()).slurm.account is None
    asked = Asked(account="mine")
    assert detect(asked).slurm.account == "mine"
    assert asked.questions["slurm.account"] == ([], "")


@pytest.mark.parametrize("option", ["gres", "gpus-per-node", "gpus"])
def test_the_way_to_ask_for_a_gpu_is_the_one_that_sbatch_takes(
    slurm: FakeSlurm, option: str
) -> None:
    slurm.takes(f"--{option}=")
    assert detect().slurm.gpu_option == option


def test_the_home_is_asked_for_where_there_is_a_choice(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("work", "scratch"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name.upper(), str(tmp_path / name))
    slurm.answer("lfs", "  /work 120000000* 0 500000000 - 3000 0 100000 -")
    asked = Asked()
    assert detect(asked).home == f"{tmp_path}/work/hpcbench"
    offered, default = asked.questions["home"]
    assert offered == [f"{tmp_path}/{one}hpcbench" for one in ("work/", "scratch/", "")]
    assert default == offered[0]
    monkeypatch.delenv("WORK")
    assert detect().home == f"{tmp_path}/hpcbench", "not where files are removed, unless it is said"


def test_a_user_without_a_writable_home_is_asked_for_a_folder(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    with pytest.raises(EnvironmentFault, match="no folder for experiments and caches") as caught:
        detect()
    assert "set HPCBENCH_HOME to one" in str(caught.value)


def test_experiments_do_not_come_among_the_source_of_a_clone(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    (tmp_path / "hpcbench").mkdir()
    (tmp_path / "hpcbench/pyproject.toml").touch()
    assert detect().home == f"{tmp_path}/hpcbench-home"
    state, what = checked(home=str(tmp_path / "hpcbench"))["home"][:2]
    assert (state, "source code" in what) == ("warning", True)


def test_proxies_go_into_the_profile_but_no_password(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert detect().env == {"https_proxy": "${env:https_proxy}", "no_proxy": "localhost"}


# --- the command ------------------------------------------------------------------------------------


def test_init_writes_what_is_set_over_what_was_found(
    slurm: FakeSlurm, tmp_path: Path, cli: Cli
) -> None:
    arguments = ["--set", "slurm.partition=gpu", "--set", 'umask="027"', "--set", "+modules=[gcc]"]
    out = cli.both("init", *arguments)
    written = tmp_path / "config/hpcbench/sites/default.yaml"
    assert f"wrote {written}" in out.out
    data = yaml.safe_load(written.read_text())
    assert (data["slurm"]["partition"], data["umask"], data["modules"]) == ("gpu", "027", ["gcc"])
    assert "partition: gpu, one of 2 suitable" in out.err


def test_init_keeps_what_administrators_set_for_all_users(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "etc"))
    shared = tmp_path / "etc/sites/default.yaml"
    shared.parent.mkdir(parents=True)
    shared.write_text(
        'name: default\numask: "027"\n'
        "slurm: {partition: fast, submit_from_jobs: false}\ncontainer: {signed: true}\n"
    )
    said = cli.err("init", "--set", "slurm.account=docs", code=0)
    assert f"took the fields of {shared}" in said
    assert "partition: fast, one of" in said
    text = (tmp_path / "config/hpcbench/sites/default.yaml").read_text()
    data = yaml.safe_load(text)
    assert (data["umask"], data["container"]["signed"]) == ("027", True)
    kept = {"partition": "fast", "submit_from_jobs": False, "account": "docs"}
    assert data["slurm"].items() >= kept.items()
    assert str(shared) in text


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1",
         "scontrol: slurm_load_partitions: Unable to contact slurm controller (connect failure)"),
        ("echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1",
         "scontrol: fatal: Could not establish a configuration source"),
        ("echo 'No partitions in the system'", "the cluster has no partition"),
    ],
)  # fmt: skip
def test_slurms_client_without_a_cluster_is_one_line_with_both_ways_on(
    slurm: FakeSlurm, cli: Cli, answer: str, why: str
) -> None:
    slurm.script("scontrol", answer)
    said = cli.err("init", "--dry-run", code=3).splitlines()[-1]
    assert said == (
        f"hpcbench: Slurm's commands are installed, but no cluster is usable: {why} (on a login node, try "
        "again when `scontrol ping` answers; to use only this machine, run `hpcbench init --set "
        "executor=local`)"
    )
    printed = cli("init", "--dry-run", "--set", "executor=local")
    assert yaml.safe_load(printed)["executor"] == "local"


@pytest.mark.parametrize(
    ("setting", "reported"),
    [
        ("slurm.acount=x", "unknown key 'acount' (did you mean 'account'?)"),
        ("umask=27", "umask: YAML reads 27 as a number (put it in quotes)"),
        ("slurm.options.array=1", "hpcbench sets sbatch's --array itself"),
        ("models/x:gpus=1", "init writes sites/default, not models/x"),
    ],
)
def test_a_wrong_setting_is_reported_and_nothing_is_written(
    slurm: FakeSlurm, tmp_path: Path, cli: Cli, setting: str, reported: str
) -> None:
    assert reported in cli.err("init", "--set", setting)
    assert not (tmp_path / "config").exists()


# --- doctor -----------------------------------------------------------------------------------------


def checked(**site: object) -> dict[str, tuple[str, str]]:
    definition = Site.model_validate({"name": "default", "executor": "slurm", **site})
    return {check.name: (check.state, check.detail) for check in checks(definition)}


def test_doctor_holds_the_job_scripts_against_slurms_own_test(slurm: FakeSlurm) -> None:
    slurm.takes("")
    found = checked(slurm={"partition": "gpu", "partitions": {"gpu": {"gpus": {"a100": 4}}}})
    assert found["worker job"] == ("ok", "Slurm accepts it, with a GPU")
    assert found["last job"] == ("ok", "Slurm accepts it")
    slurm.takes("nothing")
    found = checked(slurm={"partition": "gpu"})
    assert found["worker job"][0] == "failed"
    assert "Invalid generic resource (gres) specification" in found["worker job"][1]


@pytest.mark.parametrize(
    ("site", "name", "state", "reported"),
    [
        ({"group": "nobodys-group"}, "group", "failed", "no Unix group"),
        ({"umask": "000"}, "umask", "warning", "every user can change"),
        ({"umask": "027"}, "umask", "ok", "027"),
        ({"env": {"A": "${env:NOT_SET_HERE}"}}, "env", "failed", "A: ${env:NOT_SET_HERE}"),
        ({"modules": ["gone/1.0"]}, "modules", "failed", "gone/1.0"),
        ({"slurm": {"template": "gone"}}, "job script", "failed", "unknown template 'gone'"),
        ({"setup": ["echo '"]}, "job script", "failed", "is not valid shell code"),
    ],
)
def test_doctor_finds_what_would_break_jobs(
    slurm: FakeSlurm, site: dict[str, object], name: str, state: str, reported: str
) -> None:
    found = checked(**site)[name]
    assert found[0] == state
    assert reported in found[1]


def test_a_job_says_whether_jobs_may_submit(slurm: FakeSlurm, tmp_path: Path) -> None:
    import subprocess

    site = Site(name="default", home=str(tmp_path / "my home"))
    (tmp_path / "my home").mkdir()
    for spelling, expected in (("", True), ("never", False)):
        slurm.takes(spelling)
        (line,) = asking_job(site).setup
        subprocess.run(["bash", "-c", line], check=True, env={**os.environ, "SLURM_JOB_ID": "7"})
        assert may_submit(site) is expected
    assert may_submit(site) is None, "no job said anything since"


def test_what_a_job_found_goes_into_the_profile_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "default.yaml"
    path.write_text("# mine\nname: default\nslurm:\n  partition: gpu  # why\n")
    assert _with_line(path, "submit_from_jobs: false")
    assert _with_line(path, "submit_from_jobs: false")
    assert path.read_text() == (
        "# mine\nname: default\nslurm:\n  submit_from_jobs: false\n  partition: gpu  # why\n"
    )
    path.write_text("name: default\nslurm: {partition: gpu}\n")
    assert not _with_line(path, "submit_from_jobs: false")
    assert _with_line(path, 'cuda: "12.4"', "container")
    assert _with_line(path, 'cuda: "13.0"', "container")
    assert path.read_text() == (
        'name: default\nslurm: {partition: gpu}\ncontainer:\n  cuda: "13.0"\n'
    )


SMI = """
==============NVSMI LOG==============

Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    FB Memory Usage
        Total                             : 40960 MiB
        Reserved                          : 500 MiB
GPU 00000000:41:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    FB Memory Usage
        Total                             : 40960 MiB
"""
"""As `nvidia-smi -q` prints it, shortened."""


def test_init_on_a_machine_with_gpus_writes_the_cuda_that_its_driver_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/bash\ncat <<'END'\n{SMI}END\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:/usr/bin:/bin")
    monkeypatch.setattr("hpcbench.slurm.available", lambda: False)
    said: list[str] = []
    site = detect(say=said.append)
    assert (site.container.cuda, site.container.driver) == ("12.4", "550.54.15")
    assert "GPUs: 2 × NVIDIA A100-SXM4-40GB of 40 GiB, driver 550.54.15, CUDA 12.4" in said
    stale = site.model_copy(
        update={"container": site.container.model_copy(update={"cuda": "12.2"})}
    )
    found = {one.name: one for one in checks(stale)}["gpus"]
    assert (found.state, found.detail) == (
        "warning", "the driver here supports CUDA 12.4, but the site profile says 12.2",
    )  # fmt: skip


def test_doctor_names_a_real_job_for_the_cuda_of_nodes_unless_it_sends_one(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    partitions = {"gpu": {"gpus": {"a100": 4}}}
    site = Site.model_validate(
        {"name": "default", "home": str(tmp_path), "executor": "slurm",
         "slurm": {"partition": "gpu", "partitions": partitions}}
    )  # fmt: skip
    found = {one.name: one.remedy or "" for one in checks(site)}
    assert "`hpcbench doctor --run` asks a node" in found["gpus"]
    assert "gpus" not in {one.name for one in checks(site, real_run=True)}


def test_a_real_job_of_doctor_tells_the_gpus_of_its_node(tmp_path: Path) -> None:
    site = Site(name="default", home=str(tmp_path))
    (tmp_path / "doctor-gpus.1").write_text("NVIDIA-SMI has failed\n")
    assert gpus_of_nodes(site) is None
    (tmp_path / "doctor-gpus.2").write_text(SMI)
    found = gpus_of_nodes(site)
    assert found is not None
    assert (found.cuda, found.memory_gb) == ("12.4", 40)
    assert list(tmp_path.glob("doctor-gpus.*")) == []


# --- parsers ----------------------------------------------------------------------------------------


def test_associations_are_read() -> None:
    assert [(one.account, one.max_submit) for one in parse_associations("a|\nb|500\n\nx\n")] == [
        ("a", None),
        ("b", 500),
    ]


def test_quotas_are_put_into_words() -> None:
    assert in_words(Quota("/lustre", 12_000_000, 50_000_000, 3000, 100_000)) == (
        "12 of 50 GB used, 3000 of 100000 files"
    )
    assert in_words(Quota("/lustre", 12_000_000, 10_000_000, 3000, 0)) == "12 of 10 GB used"


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("/apps/modules:\napptainer/1.1\napptainer/1.3(default)\napptainer/1.4\n", "apptainer/1.3"),
        ("/apps:\nsingularity/3.8\napptainer/\napptainer/1.2\n", "apptainer/1.2"),
        ("singularity <L,D>\n", "singularity"),
        ("No module(s) or extension(s) found!\n", None),
        ("", None),
    ],
)
def test_the_module_of_the_container_program_is_found(text: str, module: str | None) -> None:
    assert module_of_containers(text) == module
