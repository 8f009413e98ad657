"""Metrics that score in an image: here a virtual environment, started as a container is."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars
import pytest
from polars.testing import assert_frame_equal

from hpcbench.environments.packages import Probe, install
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import ScoresFiles, read_keys
from hpcbench.plugins import Environment
from hpcbench.schema.metric import Metric
from hpcbench.submit.scoring_images import ready
from tests.unit.command import Cli
from tests.unit.evaluation.scene import asked
from tests.unit.registries import PLAN, Files
from tests.unit.small import record

IMAGE = f"venv:{sys.prefix}"

THEIRS = """
import os
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Parts:
    numerator: float
    denominator: float


@dataclass(frozen=True)
class Digits:
    api: ClassVar[int] = 1
    name: ClassVar[str] = "digits"
    higher_is_better: ClassVar[bool] = True
    aggregation: ClassVar[str] = "ratio"
    bounds: ClassVar[tuple] = (0.0, None)
    factor: float = 1.0

    def score(self, prediction, references):
        found = [one for one in str(prediction) if one.isdigit()]
        return Parts(self.factor * len(found), len(references[0]))

    def aggregate(self, parts):
        return sum(one.numerator for one in parts) / (sum(one.denominator for one in parts) or 1)

    @property
    def signature(self):
        return f"digits|factor:{self.factor:g}|v1"


class Dies(Digits):
    def score(self, prediction, references):
        if prediction == "2":
            os._exit(9)
        return super().score(prediction, references)


class Lazy(Digits):
    def score(self, prediction, references):
        import not_in_the_image


class Own(Digits):
    def aggregate(self, parts):
        return 100 * super().aggregate(parts)


class Sums(Digits):
    aggregation = "corpus"

    def score(self, prediction, references):
        return {"n": 1}

    def combine(self, sums):
        return sums["n"]
"""


def theirs(name: str, image: str | None = IMAGE, **options: Any) -> Metric:
    """A metric of a module that only the image has."""
    return Metric(name=name.lower(), plugin=f"their_scorer.{name}", image=image, options=options)


def ours(name: str, image: str | None = IMAGE, plugin: str = "") -> Metric:
    return Metric(name=name, plugin=plugin or name, image=image)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """This Python with one module more."""
    packages = tmp_path / "packages-of-the-image"
    packages.mkdir()
    (packages / "their_scorer.py").write_text(THEIRS)
    return Environment("venv", sys.executable, "sha256:of-the-image", str(packages))


def in_image(
    folder: Path,
    environment: Environment,
    metrics: Sequence[Metric],
    answers: Sequence[str | None] = ("0", "1", "2", "x"),
    **more: Any,
) -> Experiment:
    """An experiment whose images are prepared as `submit` does it."""
    here = asked(folder, answers, metrics, **more)
    images = [image for one in here.resolved.run_tasks for image in one.scoring_images]
    stored = {one.environment: asdict(environment) for one in images}
    resolved, _ = ready(here.resolved, stored, folder / "cache", lambda line: None)
    here.resolved_file.write_text(resolved.model_dump_json())
    manifest = json.loads(here.manifest_file.read_text())
    here.manifest_file.write_text(json.dumps({**manifest, "environments": stored}))
    return Experiment(here.path)


def place(here: Experiment) -> ScoresFiles:
    return ScoresFiles(here.scores_dir, "rt")


def values(here: Experiment) -> Mapping[str, Any]:
    found = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["metrics"]
    return {name: None if one is None else one["value"] for name, one in found.items()}


STRANGE = ["0", "1", " 2", "три", None, "five\udc00", '{"total": "6"', "7" * 400]


@pytest.mark.long
def test_every_kind_of_metric_scores_to_the_bit_as_on_the_host(
    tmp_path: Path, environment: Environment
) -> None:
    kinds = ["exact_match", "anls", "cer", "wer", "bleu", "chrf", "rouge_l", "repetition"]
    records = [record(n, metadata={"n": n}) for n in range(len(STRANGE))]
    there = in_image(
        tmp_path / "a", environment, [ours(one) for one in kinds], STRANGE, records=records
    )
    here = asked(tmp_path / "b", STRANGE, [ours(one, None) for one in kinds], records)
    for one in (there, here):
        evaluate(one)
    assert there.metrics_file.read_bytes() == here.metrics_file.read_bytes()
    frames = [polars.read_parquet(place(one).scores) for one in (there, here)]
    assert_frame_equal(*frames, check_exact=True)


@pytest.mark.long
def test_fields_of_objects_come_back_too(tmp_path: Path, environment: Environment) -> None:
    records = [
        record(n, references=[{"total": str(n), "items": [{"name": "a", "price": n}]}])
        for n in range(3)
    ]
    answers = ['{"total": "0", "items": []}', '{"total": 1', "no object"]
    kie: dict[str, Any] = {"plugin": "kie", "output": "object"}
    found = []
    for name, image in (("a", IMAGE), ("b", None)):
        metrics = [ours("kie_f1_micro", image), ours("valid_json", image)]
        where = tmp_path / name
        if image:
            here = in_image(where, environment, metrics, answers, records=records, **kie_task(kie))
        else:
            here = asked(where, answers, metrics, records, **kie_task(kie))
        evaluate(here)
        found.append(here)
    for kind in ("scores", "fields"):
        frames = [polars.read_parquet(getattr(place(one), kind)) for one in found]
        assert frames[0].height
        assert_frame_equal(*frames, check_exact=True)


def kie_task(ml_task: Mapping[str, Any]) -> dict[str, Any]:
    return {"plugin": ml_task["plugin"]}


@pytest.mark.long
def test_a_metric_that_only_the_image_has_makes_tables_here(
    tmp_path: Path, environment: Environment
) -> None:
    here = in_image(
        tmp_path, environment, [theirs("Digits", factor=2.0), ours("exact_match", None)]
    )
    with pytest.raises(ModuleNotFoundError):
        __import__("their_scorer")
    assert "their_scorer" not in sys.modules
    evaluate(here)
    assert values(here) == {"digits": 1.5, "exact_match": 0.75}
    (one,) = here.resolved.run_tasks
    assert load_metrics(one)["digits"].signature == "digits|factor:2|v1"


@pytest.mark.long
def test_metrics_of_one_image_share_a_container_and_those_of_another_get_theirs(
    tmp_path: Path, environment: Environment
) -> None:
    (tmp_path / "other").symlink_to(sys.prefix)
    other = f"venv:{tmp_path / 'other'}"
    metrics = [
        theirs("Digits"), ours("anls", other), ours("exact_match", None), ours("cer"),
    ]  # fmt: skip
    here = in_image(tmp_path, environment, metrics)
    (one,) = here.resolved.run_tasks
    assert [(image.image, image.metrics) for image in one.scoring_images] == [
        (IMAGE, ("digits", "cer")), (other, ("anls",)),
    ]  # fmt: skip
    evaluate(here)
    assert values(here) == {"digits": 0.75, "anls": 0.75, "exact_match": 0.75, "cer": 0.25}
    columns = polars.read_parquet(place(here).scores).columns
    own = [name for name in columns if "." not in name and name in values(here)]
    assert own == ["digits", "anls", "exact_match", "cer"], "columns stand in the plan's order"


@pytest.mark.long
def test_a_dead_container_costs_the_metrics_that_it_did_not_finish_and_is_tried_again(
    tmp_path: Path, environment: Environment
) -> None:
    metrics = [theirs("Digits"), theirs("Dies"), ours("cer"), ours("exact_match", None)]
    here = in_image(tmp_path, environment, metrics)
    lines: list[str] = []
    evaluate(here, lines.append)
    assert values(here) == {"digits": 0.75, "dies": None, "cer": None, "exact_match": 0.75}
    assert lines == [
        f"rt: metric '{name}' could not score in image '{IMAGE}': the container ended with exit code 9: "
        "it printed no message (while 'dies' scored)"
        for name in ("dies", "cer")
    ]
    faults = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["faults"]
    assert {one["metric"]: one["count"] for one in faults} == {"dies": 4, "cer": 4}
    keys = read_keys(place(here))
    assert keys is not None
    assert set(keys.metrics) == {"digits", "exact_match"}
    packages = Path(str(environment.packages))
    (packages / "their_scorer.py").write_text(THEIRS.replace("os._exit(9)", "pass"))
    again: list[str] = []
    evaluate(here, again.append)
    assert again == []
    assert values(here) == {"digits": 0.75, "dies": 0.75, "cer": 0.25, "exact_match": 0.75}


@pytest.mark.long
def test_a_module_that_the_image_lacks_is_one_line_with_image_and_metric(
    tmp_path: Path, environment: Environment
) -> None:
    here = in_image(tmp_path, environment, [theirs("Lazy"), ours("exact_match", None)])
    lines: list[str] = []
    evaluate(here, lines.append)
    assert lines == [
        f"rt: metric 'lazy' could not score in image '{IMAGE}': ModuleNotFoundError: No module named "
        "'not_in_the_image'"
    ]
    assert values(here) == {"lazy": None, "exact_match": 0.75}
    gone = in_image(tmp_path / "gone", environment, [theirs("Digits"), ours("exact_match", None)])
    (Path(str(environment.packages)) / "their_scorer.py").unlink()
    lines.clear()
    evaluate(gone, lines.append)
    (line,) = lines
    assert (
        f"rt: metric 'digits' could not score in image '{IMAGE}': plugin 'their_scorer.Digits'"
        in line
    )
    assert "No module named 'their_scorer'" in line
    assert values(gone) == {"digits": None, "exact_match": 0.75}


@pytest.mark.long
@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (theirs("Missing"), "cannot be imported: AttributeError"),
        (theirs("Digits").model_copy(update={"version": "v2"}),
         "it has version 1 there, and its definition says v2"),
        (theirs("Digits", facto=2.0), "unknown option 'facto' (did you mean 'factor'?)"),
        (theirs("Own"),
         "its aggregate() is not the sum of numerators over the sum of denominators"),
        (theirs("Sums"), "it is a corpus metric, whose sums hpcbench's own Python has to combine"),
    ],
)  # fmt: skip
def test_what_could_not_score_is_refused_before_anything_is_queued(
    tmp_path: Path, environment: Environment, metric: Metric, why: str
) -> None:
    with pytest.raises(UserError) as refused:
        in_image(tmp_path, environment, [metric, ours("cer")])
    (problem,) = refused.value.problems
    assert problem.message.startswith(f"metric '{metric.name}' cannot score in image '{IMAGE}': ")
    assert why in problem.message
    assert problem.remedy


@pytest.mark.long
def test_a_value_that_json_cannot_hold_is_a_fault_of_its_sample(
    tmp_path: Path, environment: Environment
) -> None:
    records = [record(n) for n in range(3)]
    records[1]["metadata"] = {"when": {"deep": float("nan")}}
    here = in_image(tmp_path, environment, [ours("exact_match")], ["0", "1", "2"], records=records)
    evaluate(here)
    assert values(here) == {"exact_match": 1.0}, "JSON of Python holds what is no number"


@pytest.mark.long
def test_an_image_that_is_not_here_is_refused_before_scores_change(
    tmp_path: Path, environment: Environment, cli: Cli
) -> None:
    here = in_image(tmp_path, environment, [theirs("Digits"), ours("exact_match", None)])
    evaluate(here)
    before = place(here).scores.read_bytes()
    manifest = json.loads(here.manifest_file.read_text())
    (stored,) = manifest["environments"].values()
    stored["path"] = str(tmp_path / "gone" / "python")
    here.manifest_file.write_text(json.dumps(manifest))
    cli("score", here.id, "--json")
    reported = cli.err("score", here.id, "--anew", code=3).strip().splitlines()[-1]
    assert reported == (
        f"hpcbench: metric 'digits' scores in image '{IMAGE}': {stored['path']} is not on this machine "
        "(put the virtual environment on a file system that all nodes see)"
    )
    assert place(here).scores.read_bytes() == before
    lines: list[str] = []
    place(here).scores.unlink()
    evaluate(Experiment(here.path), lines.append)  # as the last job does: the others are scored
    assert values(here) == {"digits": None, "exact_match": 0.75}
    assert len(lines) == 1
    assert "is not on this machine" in lines[0]


@pytest.mark.long
def test_score_shows_other_options_and_metrics_from_the_image(
    tmp_path: Path, environment: Environment, cli: Cli
) -> None:
    here = in_image(tmp_path, environment, [theirs("Digits"), ours("exact_match", None)])
    evaluate(here)
    words = ["--metrics", "digits", "--metric-option", "digits.factor=4", "--json"]
    (row,) = cli.json("score", here.id, *words)["rows"]
    assert (row["value"], row["signature"]) == (3.0, "digits|factor:4|v1")


# --- who names the image ------------------------------------------------------------------------------


def test_a_metric_names_its_image_else_the_ml_task_else_the_plan(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("images/stage.yaml", "name: stage\nreference: stage.sif\n")
    files.write("metrics/anls.yaml", "name: anls\nplugin: anls\nimage: own.sif\n")
    files.write("ml_tasks/vqa.yaml", ML_TASK.format(image=""))
    plan = PLAN + "evaluation: {image: stage}\n"

    def images(text: str) -> dict[str, str | None]:
        (one,) = files.resolved(text).run_tasks
        return {
            metric.name: metric.image and str(Path(metric.image).relative_to(tmp_path))
            for metric in one.metrics
        }

    assert images(PLAN) == {"anls": "registry/metrics/own.sif", "exact_match": None}
    assert images(plan) == {
        "anls": "registry/metrics/own.sif", "exact_match": "registry/images/stage.sif",
    }  # fmt: skip
    files.write("ml_tasks/vqa.yaml", ML_TASK.format(image="image: task.sif\n"))
    assert images(plan)["exact_match"] == "registry/ml_tasks/task.sif"
    assert (
        images(PLAN + "evaluation: {image: ./mine.sif}\n")["exact_match"]
        == "registry/ml_tasks/task.sif"
    )


ML_TASK = "name: vqa\nplugin: vqa\nsample_fields: [question]\nmetrics: [anls, exact_match]\n{image}"


def test_mistakes_in_images_for_scoring_have_their_places(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("metrics/anls.yaml", "name: anls\nplugin: anls\nimage: stag\n")
    files.write("images/stage.yaml", "name: stage\nreference: docker://h/stage:1\n")
    plan = files.plan(PLAN + "evaluation: {image: docker://h/scorer:1}\n")
    with pytest.raises(UserError) as refused:
        files.resolved(plan.read_text())
    reported = {
        f"{Path(str(one.file)).name}:{one.line}: {one.message}" for one in refused.value.problems
    }
    assert reported == {
        "anls.yaml:3: unknown image 'stag' (did you mean 'stage'?)",
        "p.yaml:8: image docker://h/scorer:1 is not locked: a tag can move",
    }


def test_the_package_of_a_metric_goes_where_the_metric_scores(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(
        "packages/mine.yaml",
        "name: mine\nsource: {type: pypi, name: mine, version: '1'}\nprovides: {metrics: [closeness]}\n",
    )
    files.write("metrics/anls.yaml", "name: anls\nplugin: closeness\nimage: /s.sif\n")
    found = files.resolved()
    assert found.host_packages == ()
    (image,) = found.run_tasks[0].scoring_images
    assert (image.metrics, image.packages) == (("anls",), ("mine",))
    files.write("metrics/exact_match.yaml", "name: exact_match\nplugin: closeness\n")
    assert files.resolved().host_packages == ("mine",), "another metric of it scores on the host"


def test_a_manager_of_other_machines_cannot_score(tmp_path: Path) -> None:
    here = asked(tmp_path, ["0"], [ours("exact_match", "docker://h/scorer@sha256:" + "0" * 64)])
    resolved = here.resolved
    container = resolved.site.container.model_copy(update={"manager": "runpod"})
    site = resolved.site.model_copy(update={"container": container})
    with pytest.raises(EnvironmentFault, match="runpod runs images on other machines"):
        ready(resolved.model_copy(update={"site": site}), {}, tmp_path / "cache", print)


# --- plain requirements ----------------------------------------------------------------------------------


def test_plain_requirements_go_where_the_metrics_of_their_ml_task_score(tmp_path: Path) -> None:
    files = Files(tmp_path)
    packages = 'required_packages: [pillow, "torch>=2.4"]\n'
    files.write("ml_tasks/vqa.yaml", ML_TASK.format(image=packages))
    found = files.resolved()  # prod: what submission installs is locked then
    assert found.host_packages == ("pillow", "torch>=2.4")
    assert found.run_tasks[0].scoring_images == ()
    files.write("ml_tasks/vqa.yaml", ML_TASK.format(image=packages + "image: /scorer.sif\n"))
    found = files.resolved()
    assert found.host_packages == ()
    (image,) = found.run_tasks[0].scoring_images
    assert image.packages == ("pillow", "torch>=2.4")
    assert found.packages["torch>=2.4"].source.model_dump() == {
        "type": "requirement", "line": "torch>=2.4",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("mine", None),
        ("mone", "unknown package 'mone' (did you mean 'mine'?)"),
        ("'not a requirement'", "unknown package 'not a requirement'"),
    ],
)
def test_a_package_is_a_definition_or_a_requirement_and_no_misspelt_name(
    tmp_path: Path, entry: str, why: str | None
) -> None:
    files = Files(tmp_path)
    files.write(
        "packages/mine.yaml", "name: mine\nsource: {type: pypi, name: mine, version: '1'}\n"
    )
    text = ML_TASK.format(image=f"required_packages: [{entry}]\n")
    files.write("ml_tasks/vqa.yaml", text)
    if why is None:
        assert list(files.resolved().packages) == ["mine"]
        return
    (reported,) = files.refusal()
    assert reported.startswith("registry/ml_tasks/vqa.yaml:5:21: " + why)


def test_torch_for_scoring_is_the_build_for_cpus_unless_the_user_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what uv is asked for: PyTorch's index is not reached here."""
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(
        f'#!/bin/sh\necho "$1 $2 ${{UV_TORCH_BACKEND-none}}" >> {tmp_path}/asked\nexit 1\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    probed = Probe("3.11.2", "2.36", "x86_64", "", {"pillow": "11.0.0", "torch": "2.9.0+cu130"})

    def asked_for(*lines: str) -> list[str]:
        (tmp_path / "asked").unlink(missing_ok=True)
        folder = tmp_path / "packages"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(EnvironmentFault):
            install(probed, folder, tmp_path / "cache", lines, ())
        found = tmp_path / "asked"
        return found.read_text().splitlines() if found.exists() else []

    assert set(asked_for("timm", "--torch-backend cpu")) == {"pip compile cpu"}
    assert set(asked_for("timm")) == {"pip compile none"}
    assert asked_for("pillow", "torch>=2.4", "--torch-backend cpu") == [], "the image has both"
    assert (tmp_path / "packages/lock.txt").read_text() == ""
    monkeypatch.setenv("UV_TORCH_BACKEND", "")
    assert set(asked_for("timm", "--torch-backend cpu")) == {"pip compile none"}
