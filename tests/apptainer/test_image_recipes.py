"""The recipes under recipes/images, given to Apptainer as an ordinary user gives them.

`hf-cpu` is really built, from Debian's packages and PyPI. The others are built on the same Debian with stubs
instead of apt, pip and Python: that needs no GPU's gigabytes, and Apptainer still reads every section, copies
the files and runs each command line.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hpcbench.environments.recipes import Recipe, parse
from tests.campaign import first
from tests.cluster.lab import Lab
from tests.conftest import unavailable
from tests.recipe_lint import lint
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

RECIPES = Path(__file__).parents[2] / "recipes/images"
LONGEST = 1000.0
"""Seconds that a build of a recipe may take where everything it downloads is slow to come."""

STUB = """\
#!/bin/sh
echo "DRY ${0##*/} $*"
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp /mnt/* "$3/bin/" ;;
    *"-r "*) grep -q -e --hash=sha256: "${*##*-r }" ;;
esac
"""


TRICKY = r"""
ARG BASE=x
FROM ${BASE}
ARG V=/opt/v
ENV A=1 P='si$A ng'  Q="d $V \$A \"q\" \x"
ENV A=2 B=$A PATH=$V/bin:$PATH
ENV E=env
ARG E=arg
WORKDIR /work
WORKDIR sub
COPY a.lock ./in/
COPY a.lock copied
COPY ["a.lock", "/opt/"]
RUN cd /; false; echo "one $(pwd) $E" \
    # comment
 'a   b' "$P|$Q|$B|$PATH" > /out
RUN pwd >> /out; ls /work/sub /work/sub/in /opt >> /out; echo '{{ x }} %post' >> /out
RUN ["sh", "-c", "echo \"$0 $A\" '{{x}}' >> /out", "%zero"]
RUN echo "a\
b" >> /out; env | grep -E '^(A|B|P|Q|E|V)=' | sort >> /out; umask >> /out
"""
AS_PODMAN_MADE_IT = r"""
one / env a   b si$A ng|d /opt/v $A "q" \x|1|/opt/v/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/work/sub
/opt:
a.lock

/work/sub:
copied
in

/work/sub/in:
a.lock
{{ x }} %post
%zero 2 {{x}}
ab
A=2
B=1
E=env
P=si$A ng
Q=d /opt/v $A "q" \x
V=/opt/v
0022
"""  # noqa: E501 - podman 4.3.1, `podman build --isolation chroot`, the same Debian


@pytest.fixture(scope="module")
def base(lab: Lab) -> str:
    """A plain Debian in the lab's registry, as `FROM` names it."""
    try:
        reference, digest = lab.base_image()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no Debian image: {error}")
    return f"{reference.removeprefix('docker://')}@{digest}"


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    """A folder of the user with the recipes in it, wherever this checkout lies."""
    made = lab.new_directory("recipes")
    shutil.copytree(RECIPES, made / "images")
    yield made
    shutil.rmtree(made)


def build(
    lab: Lab, recipe: Recipe, target: Path, options: Sequence[str], env: Mapping[str, str],
    program: str | Path = "apptainer",
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`apptainer build` of the definition that a recipe gives."""
    definition = target.with_suffix(".def")
    definition.write_text(recipe.definition({"hpcbench.recipe.digest": recipe.digest}))
    argv = [program, "build", "--fakeroot", "--no-https", *options]
    kept = {
        f"{name}_{key}": f"{target.parent}{below}"
        for name in ("APPTAINER", "SINGULARITY")
        for key, below in (("CACHEDIR", "/cache"), ("TMPDIR", ""))
    }
    words = [*argv, target, definition]
    done = lab.run_as_user(words, cwd=target.parent, env={**kept, **env}, timeout=LONGEST)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def pip_here() -> tuple[dict[str, str], list[str], dict[str, str]]:
    """How pip reaches its index on this machine, handed on: build arguments, mounts, environment.

    A mount needs a folder that is there already: /mnt and /media are in every image.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    settings = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = ast.literal_eval(value)
    args, mounts, env = {}, list[str](), {}
    if wheels := settings.get("find-links"):  # that folder has torch for CPUs
        args["PIP_EXTRA_INDEX_URL"] = ""
        mounts.append(f"{wheels.split()[0]}:/mnt:ro")
        env["PIP_FIND_LINKS"] = "/mnt"
    if cert := settings.get("cert"):
        mounts.append(f"{Path(cert).parent}:/media:ro")
        env["PIP_CERT"] = f"/media/{Path(cert).name}"
    return args, mounts, env


@pytest.mark.slurm
@pytest.mark.campaign  # it downloads and packs a gigabyte
def test_an_experiment_runs_in_the_image_of_the_cpu_recipe(
    user: User, image: str, base: str, folder: Path
) -> None:
    """A model names the Dockerfile; nothing else is asked of the user."""
    args, mounts, env = pip_here()
    dockerfile = folder / "images/hf-cpu/Dockerfile"
    assert lint(parse(dockerfile, {"BASE": base})) == []  # given by its digest, the base is pinned
    user.init(insecure_registry=image.removeprefix("docker://").partition("/")[0])
    user.at_site(build_args={"BASE": base, **args}, build_binds=mounts, build_env=env)
    (built,) = user.json("images", "build", dockerfile, timeout=LONGEST)
    first = Path(built["path"]).stat()
    (again,) = user.json("images", "build", dockerfile)
    assert again["path"] == built["path"]
    assert Path(again["path"]).stat().st_ino == first.st_ino, "it was built a second time"

    user.write_model("tiny-vlm", image=str(dockerfile), needs=["torch>=2.4", "python>=3.11"])
    plan = user.plan("recipe", [{"name": "x", "ml_task": "vqa", "model": "tiny-vlm", "limit": 4,
                                 "dataset": "demo_vqa", "prompt": "demo_vqa"}])  # fmt: skip
    done = user.hpcbench("submit", plan, "--registry", user.registry, "--wait", "--json")
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert (status["state"], status["run_tasks"][0]["answered"]) == ("done", 4)
    manifest = json.loads((user.experiment(status["id"]) / "manifest.json").read_text())
    (environment,) = manifest["environments"].values()
    assert environment["digest"] == built["digest"]
    assert environment["details"]["transport"] == "recipe"

    code = "import sys, os; print(sys.executable, os.path.exists('/.recipe'), os.environ['HF_HUB_OFFLINE'])"
    argv = ["apptainer", "-q", "exec", "--containall", str(built["path"]), "python3", "-c", code]
    assert user.lab.run_as_user(argv).stdout.split() == ["/opt/venv/bin/python3", "False", "1"]
    reported = user.lab.run_as_user(["apptainer", "inspect", "--json", built["path"]]).stdout
    labels = json.loads(reported)["data"]["attributes"]["labels"]
    assert labels["hpcbench.source.digest"] == built["digest"]
    assert labels["org.opencontainers.image.title"] == "hpcbench hf-cpu"


@pytest.mark.slurm
@pytest.mark.campaign  # it downloads and packs 300 MB
def test_metrics_score_in_the_image_of_the_evaluation_recipe(
    slurm_user: User, base: str, folder: Path
) -> None:
    """The image that `evaluation: {image: evaluation}` names, built from this repository's recipe."""
    user = slurm_user
    _, mounts, env = pip_here()
    dockerfile = folder / "images/evaluation/Dockerfile"
    user.at_site(build_args={"BASE": base}, build_binds=mounts, build_env=env)
    (built,) = user.json("images", "build", dockerfile, timeout=LONGEST)
    for name in ("anls", "bleu"):
        user.write(
            f"metrics/{name}_there.yaml",
            {"name": f"{name}_there", "plugin": name, "image": str(dockerfile)},
        )
    answers = user.folder / "answers.jsonl"
    samples = (Path(__file__).parents[2] / "examples/demo/data/vqa.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in samples.splitlines()]
    texts = [{"id": one["id"], "text": one["references"][0][:9]} for one in rows]
    answers.write_text("".join(json.dumps(one) + "\n" for one in texts), "utf-8")
    names = "anls,anls_there,bleu,bleu_there"
    words: list[str | Path] = ["score", answers, "--dataset", "demo_vqa", "--ml-task", "vqa"]
    words += ["--metrics", names, "--registry", user.registry, "--json"]
    done = user.hpcbench(*words, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    values = {row["metric"]: row["value"] for row in json.loads(done.stdout)["rows"]}
    assert values["anls"] == values["anls_there"] and 0 < values["anls"] < 1
    assert values["bleu"] == values["bleu_there"]

    run_task = {"name": "x", "ml_task": "vqa", "model": "tiny-vlm", "limit": 8, "dataset": "demo_vqa",
                "prompt": "demo_vqa", "metrics": ["anls", "bleu", "exact_match"]}  # fmt: skip
    scored = {}
    for name, more in {"there": {"evaluation": {"image": "evaluation"}}, "here": {}}.items():
        experiment = user.submit(user.plan(name, [run_task], **more), "--fresh")
        now = user.wait(experiment)
        assert now["state"] == "done", now
        path = user.experiment(experiment)
        scored[name] = json.loads((path / "metrics.json").read_text())["run_tasks"]["x"]["metrics"]
        environments = json.loads((path / "manifest.json").read_text())["environments"].values()
        digests = [one["digest"] for one in environments]
        assert (built["digest"] in digests) is (name == "there")
    assert scored["there"] == scored["here"]
    assert scored["there"]["anls"]["n"] == 8
    code = "import hpcbench; print(hpcbench.__file__)"  # only by hpcbench's own mount
    argv = ["apptainer", "-q", "exec", "--containall", str(built["path"]), "python3", "-c", code]
    assert user.lab.run_as_user(argv).returncode != 0


def test_what_is_easily_misread_is_built_as_docker_builds_it(
    lab: Lab, base: str, folder: Path, program: Path
) -> None:
    (folder / "Dockerfile").write_text(TRICKY.strip())
    (folder / "a.lock").write_text("l\n")
    recipe = parse(folder / "Dockerfile", {"BASE": base})
    build(lab, recipe, folder / "tricky", ["--sandbox"], {}, program)
    assert (folder / "tricky/out").read_text() == AS_PODMAN_MADE_IT.lstrip()


def test_a_definition_of_the_users_own_is_built_where_it_lies(
    user: User, image: str, base: str, folder: Path, program: Path
) -> None:
    definition = folder / "own.def"
    definition.write_text(
        f"Bootstrap: docker\nFrom: {base}\n\n%files\n    beside.txt /opt/beside.txt\n\n"
        "%post\n    echo made > /opt/made\n\n%labels\n    of.mine yes\n"
    )
    (folder / "beside.txt").write_text("beside")
    user.init(insecure_registry=image.removeprefix("docker://").partition("/")[0])
    user.at_site(program=str(program))
    done = user.hpcbench("images", "build", definition)
    assert "Python of" in done.stderr, done.stderr  # a plain Debian has none
    (sif,) = (user.home / "cache/images").glob("*.sif")
    read = [program, "-q", "exec", sif, "cat", "/opt/beside.txt", "/opt/made"]
    assert user.lab.run_as_user(read).stdout == "besidemade\n"
    labels = user.lab.run_as_user([program, "inspect", "--labels", sif]).stdout
    assert "of.mine: yes" in labels
    assert "hpcbench.source.digest: sha256:" in labels


@pytest.mark.parametrize("name", first(1, ["vllm", "sglang", "hf", "deepseek-ocr", "evaluation"]))
def test_the_other_recipes_lint_and_run_dry(lab: Lab, base: str, folder: Path, name: str) -> None:
    path = folder / "images" / name / "Dockerfile"
    assert lint(parse(path)) == []
    stubs = folder / "stubs"
    stubs.mkdir()
    for program in ("apt-get", "pip", "python3"):
        (stubs / program).write_text(STUB)
        (stubs / program).chmod(0o755)
    recipe, sandbox = parse(path, {"BASE": base}), folder / name
    env = {"APPTAINERENV_PATH": "/mnt:/usr/bin:/bin"}
    done = build(lab, recipe, sandbox, ["--sandbox", "--bind", f"{stubs}:/mnt:ro"], env)

    ran = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("DRY ")]
    installs = [words for words in ran if "install" in words and "--require-hashes" in words]
    assert [words[-1] for words in installs] == ["/opt/requirements.lock"]
    assert ran[-1][:2] == ["python3", "-c"]  # the recipe's own check comes last
    inside = lab.run_as_user(["apptainer", "--quiet", "exec", "--containall", sandbox, "env"])
    variables = dict(line.partition("=")[::2] for line in inside.stdout.splitlines())
    for key, value in recipe.environment.items():
        if len(value) == 1 and isinstance(value[0], str):
            assert variables[key] == value[0]
    if "PATH" in recipe.environment:
        assert variables["PATH"].startswith("/opt/venv/bin:/")
    reported = json.loads((sandbox / ".singularity.d/labels.json").read_text())
    assert reported["hpcbench.recipe.digest"] == recipe.digest
