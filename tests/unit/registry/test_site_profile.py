"""Values of a site profile and a model's shape: reported at their place before a job is submitted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import ensure_folder, new_folder, use_umask
from hpcbench.files.atomic import Appender, create_exclusive, write_atomic
from hpcbench.registry.catalog import Catalog, share_dir
from hpcbench.registry.sites import findings
from hpcbench.schema.site import Site
from tests.unit.registries import DEFINITIONS, PLAN, Files
from tests.unit.registry.test_checks import files, with_model

__all__ = ["files"]

CLUSTER = """\
name: default
executor: slurm
slurm:
  partition: gpu
  partitions:
    gpu: {memory_gb: 500, gpus: {a100: 4, h100: 2}}
"""


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("slurm: {account: \"a\\nb\"}", "2:18: a job script cannot contain a line break"),
        ("slurm: {gpu_gres: \"gpu:a100:1\"}", "2:19: 'gpu:a100:1' is neither NAME nor NAME:TYPE"),
        ("slurm: {gpu_option: gpus, gpu_gres: fpga}", "2:21: sbatch's --gpus requests only GPUs, not 'fpga'"),
        ("slurm: {options: {array: 0-3}}", "2:26: hpcbench sets sbatch's --array itself (use `parallelism`"),
        ("slurm: {options: {job_name: x}}", "2:29: hpcbench sets sbatch's --job-name itself (remove it)"),
        ("slurm: {options: {--mem: 1}}", "2:26: '--mem' is not the name of an sbatch option (use long names"),
        ("slurm: {template: nope}", "2:19: unknown template 'nope' (there are: default,"),
        ("modules: [gcc cuda]", "2:11: 'gcc cuda' is not the name of a module (write one per entry"),
        ("setup: [\"a\\nb\"]", "2:9: a job script cannot contain a line break (write one line per entry)"),
        ("env: {A-B: x}", "2:12: 'A-B' is not the name of a variable"),
        ("env: {UID: x}", "2:12: bash does not allow setting UID"),
        ("env: {HF_TOKEN: hf_plain}", "2:17: HF_TOKEN contains a secret in plain text (write "
         "${env:HF_TOKEN}"),
        ("env: {A: \"${env:NOT_SET_HERE}\"}", "2:10: ${env:NOT_SET_HERE}: the variable is not set"),
        ("umask: \"777\"", "2:8: umask 777 takes permissions from the owner"),
    ],
)  # fmt: skip
def test_what_cannot_be_in_a_job_is_reported_in_the_profile(
    files: Files, line: str, reported: str
) -> None:
    files.write("sites/default.yaml", f"name: default\n{line}\n")
    (found,) = files.refusal()
    assert found.startswith(f"registry/sites/default.yaml:{reported}"), found


def test_a_template_that_is_no_jinja_is_reported_at_its_own_line(files: Files) -> None:
    files.write("sites/own.j2", "# fine\n{% if %}\n")
    files.write("sites/default.yaml", "name: default\nslurm: {template: ./own.j2}\n")
    (found,) = files.refusal()
    assert found.startswith(
        "registry/sites/own.j2:2: not a valid Jinja2 template: Expected an expression"
    )


def test_a_template_is_looked_for_beside_its_profile(files: Files) -> None:
    path = files.write("sites/own.j2", "# fine\n")
    files.write("sites/default.yaml", "name: default\nslurm: {template: own.j2}\n")
    assert files.resolved().site.slurm.template == str(path)


@pytest.mark.parametrize("name", ["csc-roihu", "idris-jean-zay", "lumi-g"])
def test_the_example_profiles_are_valid_and_say_where_they_come_from(name: str) -> None:
    site = Catalog(project=False).get(Site, name)
    assert not list(findings(site))
    assert site.executor == "slurm"
    assert site.slurm.account is None, "an example charges nobody"
    text = (share_dir() / "registries" / "sites" / f"{name}.yaml").read_text()
    assert "NOT TRIED BY US" in text
    assert "https://" in text or "http://" in text
    assert "2026-" in text, "the day it was read"


# --- a model's shape --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("engine_options: {nnodes: 2}", "4:18: engine option 'nnodes' is set by hpcbench (set the model's"),
        ("parallel: {tensor: 8}\nengine_options: {tensor_parallel_size: 4}", "5:40: `parallel` has tensor: "
         "8, but the engine option 'tensor_parallel_size' is 4"),
        ("gpus: 3\nparallel: {tensor: 8}", "5:11: tensor 8 × pipeline 1 × data 1 is 8 GPUs, which is no "
         "multiple of `gpus: 3` of each node"),
        ("nodes: 3\nparallel: {tensor: 8}", "5:11: tensor 8 × pipeline 1 × data 1 is 8, which 3 nodes cannot "
         "share equally"),
        ("nodes: 2\ngpus: 8\nparallel: {tensor: 8}", "6:11: tensor 8 × pipeline 1 × data 1 is 8 GPUs, but "
         "2 × 8 are 16"),
        ("gpus: 2\nengine_options: {tensor_parallel_size: 4}", "5:17: tensor parallel 4 × pipeline "
         "parallel 1 needs 4 GPUs, but the model has 2"),
        ("gpus: 4\nengine_options: {pipeline-parallel-size: 2}", "5:17: tensor parallel 4 × pipeline "
         "parallel 2 needs 8 GPUs, but the model has 4"),
        ("gpus: 4\nengine_options: {tensor_parallel_size: 2}", "5:17: tensor parallel 2 × pipeline "
         "parallel 1 needs 2 GPUs, but the model has 4"),
        ("gpus: 2\nengine_options: {tensor_parallel_size: 2}\nlarger: [{gpus: 4}]", "5:17: tensor parallel "
         "2 × pipeline parallel 1 needs 2 GPUs, but the model has 4"),
        ("gpus: 4\nlarger: [{gpus: 2}]", "5:17: 2 GPUs are fewer than the 4 of the shape before"),
        ("gpus: 2\nlarger: [{gpus: 2}]", "5:10: is no larger than the shape before"),
        ("gpus: 1\nlarger: [{memory_gb: 90}, {memory_gb: 60}]", "5:39: 60 GiB are less than the 90 of "
         "the shape before"),
    ],
)  # fmt: skip
def test_a_shape_that_cannot_be_is_reported_in_the_model(
    files: Files, model: str, reported: str
) -> None:
    with_model(files, f"engine: vllm\n{model}\n")
    (found,) = files.refusal()
    assert found.startswith(f"registry/models/org/tiny.yaml:{reported}"), found


@pytest.mark.parametrize(
    "model",
    [
        "gpus: 4\nengine_options: {tensor_parallel_size: 2, pipeline_parallel_size: 2}",
        "gpus: 4\nengine_options: {tensor_parallel_size: 2, data_parallel_size: 2}",
        "gpus: 4\nengine_options: {data_parallel_size: 4}",
        "gpus: 0\nengine_options: {tensor_parallel_size: 2}",  # on processors: one part a socket
        "gpus: 1\nlarger: [{gpus: 2}, {gpus: 2, memory_gb: 90}, {gpu_type: h100}]",
    ],
)
def test_a_shape_that_can_be_is_let_be(files: Files, model: str) -> None:
    with_model(files, f"engine: vllm\n{model}\n")
    files.resolved()


@pytest.mark.parametrize(
    ("larger", "reported"),
    [
        ("{gpus: 8}", "partition 'gpu' has 4 GPUs on a node, not the 8 of larger shape 1 of model"),
        ("{gpus: 4, gpu_type: h100}", "partition 'gpu' has 2 GPUs on a node, not the 4 of larger"),
        ("{gpu_type: b200}", "larger shape 1 of model 'org/tiny': unknown GPU type 'b200'"),
        ("{memory_gb: 600}",
         "partition 'gpu' has at most memory_gb: 500, not the 600 of larger shape"),
        ("{memory_gb: 8}",
         "larger shape 1 of model 'org/tiny' is no larger than the run task's own resources"),
    ],
)  # fmt: skip
def test_a_larger_shape_is_larger_and_fits_the_partition(
    files: Files, larger: str, reported: str
) -> None:
    files.write("sites/default.yaml", CLUSTER)
    with_model(files, f"engine: vllm\ngpus: 2\nlarger: [{larger}]\n")
    (found,) = files.refusal()
    assert found.startswith(f"p.yaml:5:12: {reported}"), found


def test_an_engine_for_more_nodes_than_the_partition_has_is_refused(files: Files) -> None:
    files.write("sites/default.yaml", CLUSTER.replace("gpu: {", "gpu: {nodes: 3, "))
    with_model(files, "engine: vllm\ngpus: 4\nparallel: {tensor: 4, pipeline: 4}\n")
    (found,) = files.refusal()
    assert found.startswith(
        "p.yaml:5:12: partition 'gpu' has 3 nodes, but model 'org/tiny' needs 4"
    ), found


def test_the_definitions_of_these_tests_are_right_by_themselves(files: Files) -> None:
    assert DEFINITIONS
    files.write("sites/default.yaml", CLUSTER)
    files.resolved(PLAN)


# --- group and umask --------------------------------------------------------------------------------


@pytest.fixture
def _umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(
    ("umask", "folder", "file"),
    [(None, 0o750, 0o644), ("022", 0o755, 0o644), ("027", 0o750, 0o640), ("007", 0o770, 0o660),
     ("077", 0o700, 0o600)],
)  # fmt: skip
def test_what_an_experiment_leaves_has_the_rights_the_umask_lets_it(
    tmp_path: Path, umask: str | None, folder: int, file: int
) -> None:
    site = Site(name="default", umask=umask)
    use_umask(site)
    top = tmp_path / "experiment"
    new_folder(top, site)
    write_atomic(top / "plan.yaml", "x")
    create_exclusive(top / "claim.jsonl", {"event": "claimed"})
    with Appender(top / "events.jsonl") as log:
        log.write({"event": "x"})
    assert mode(top) == folder
    assert {mode(path) for path in top.iterdir()} == {file}


@pytest.mark.usefixtures("_umask")
def test_folders_and_files_below_belong_to_the_sites_group(tmp_path: Path) -> None:
    import grp

    others = [number for number in os.getgroups() if number != os.getgid()]
    number = (
        others[0] if others else (os.getgid() if os.geteuid() else grp.getgrnam("users").gr_gid)
    )
    site = Site(name="default", group=grp.getgrgid(number).gr_name, umask="007")
    use_umask(site)
    ensure_folder(tmp_path / "home" / "experiments", site)
    new_folder(tmp_path / "home" / "experiments" / "one", site)
    write_atomic(tmp_path / "home" / "experiments" / "one" / "shards" / "rt" / "a.json", "{}")
    made = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert {path.stat().st_gid for path in made} == {number}
    assert {mode(path) for path in made if path.is_dir()} == {0o2770}
    assert {mode(path) for path in made if path.is_file()} == {0o660}


def test_an_unknown_group_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    site = Site(name="default", group="nobodys-group")
    with pytest.raises(EnvironmentFault, match="this machine has no Unix group 'nobodys-group'"):
        new_folder(tmp_path / "one", site)
    assert not list(tmp_path.iterdir())
