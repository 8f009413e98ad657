"""The methods section of a paper: each number is in the experiment's files, and what is unknown is named."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hpcbench import plugins
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.reused import Reused
from hpcbench.files.atomic import write_json
from hpcbench.metrics.citations import CITATIONS
from hpcbench.reporting.methods import Methods, latex, markdown, methods, to_json
from tests.unit.command import Cli
from tests.unit.earlier import SHORT, WHOLE, unpack
from tests.unit.reporting.many import answered, right
from tests.unit.reporting.test_speed_report import swept


def section(found: Methods, name: str) -> str:
    """The paragraphs of a section; empty where there is none."""
    sections = {one["name"]: one["paragraphs"] for one in to_json(found)["sections"]}
    return "\n".join(sections.get(name, ()))


def changed(here: Experiment, **run_task: Any) -> Experiment:
    """The experiment with other values in the resolved plan: `model__dtype`, `task__generation__seed`."""
    whole = json.loads(here.resolved_file.read_text())
    for key, value in run_task.items():
        *parents, last = key.split("__")
        for one in whole["run_tasks"]:
            place = one
            for parent in parents:
                place = place[parent]
            place[last] = value
    here.resolved_file.write_text(json.dumps(whole))
    return Experiment(here.path)


def rewritten(here: Experiment, **values: Any) -> Experiment:
    """The experiment with other values in the manifest."""
    write_json(here.manifest_file, {**json.loads(here.manifest_file.read_text()), **values})
    return Experiment(here.path)


# --- every number is in a file --------------------------------------------------------------------------

FILES = ("manifest.json", "metrics.json", "resolved.json", "performance.json", "outcome.json")


def unfounded(here: Experiment, more: str = "") -> Iterator[str]:
    """Words with a digit that neither occur in the experiment's files nor are a number there."""
    texts = [(here.path / name).read_text() for name in FILES if (here.path / name).exists()]
    whole = "\n".join([here.id, *texts])
    numbers = {float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", whole)}
    text = markdown(methods(here)).partition("## References")[0] + more
    for one in CITATIONS.values():
        text = text.replace(f"published as {one.partition(', ')[0]}", "")
    for word, percent in re.findall(r"([^\s,;()\"`*#\\]*\d[^\s,;()\"`*#\\]*)( %)?", text):
        bare = word.strip(".:")
        if bare in whole and not re.fullmatch(r"[\d.]+", bare):
            continue
        if re.fullmatch(r"\d+(\.\d+)?", bare):
            if percent and any(abs(100 * one - float(bare)) < 0.051 for one in numbers):
                continue
            if float(bare) in numbers:
                continue
        if bare.count(".") > 1 and f'"{bare}"' in whole:  # a version
            continue
        yield bare


@pytest.mark.parametrize("which", [WHOLE, SHORT])
def test_each_number_is_in_a_file_of_an_earlier_version(tmp_path: Path, which: str) -> None:
    assert list(unfounded(unpack(tmp_path)[which])) == []


def test_each_number_is_in_a_file_of_two_models(tmp_path: Path) -> None:
    here = answered(tmp_path, {"good": right(12, 1), "bad": ["x", None, *right(10, 0.5)]})
    assert list(unfounded(here)) == []


@pytest.mark.long
def test_each_number_is_in_a_file_of_a_sweep(tmp_path: Path) -> None:
    assert list(unfounded(swept(tmp_path))) == []


def test_a_number_from_elsewhere_would_be_found(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    words = ("12 samples", "13.5 samples", "987 %", "hpcbench 9.9.9", "sha256:abc1", "2031-01-01")
    found = [list(unfounded(here, f" {one} ")) for one in words]
    assert found == [[], ["13.5"], ["987"], ["9.9.9"], ["sha256:abc1"], ["2031-01-01"]]


# --- the sentences follow the files ---------------------------------------------------------------------


def test_an_experiment_of_the_demo_names_all_that_a_paper_needs(tmp_path: Path) -> None:
    found = methods(unpack(tmp_path)[WHOLE])
    assert [one.name for one in found.sections] == [
        "models", "data", "prompts", "images", "decoding", "load", "metrics", "statistics", "outcomes",
        "software", "missing", "references",
    ]  # fmt: skip
    for name, text in (
        ("models", "engine huggingface (transformers 5.19.0, torch 2.13.0+cpu)"),
        ("models", "digest sha256:7b8dfdabb39885f17e286a09ec23d40b74abfb2e84aaee6087df9eaabd6a712e"),
        ("data", "demo_vqa version 1, split easy"),
        ("data", "12 samples of 300 in the split: at most the first 12"),
        ("prompts", "{{ question }}"),
        ("images", "image files unchanged, byte for byte"),
        ("images", "sent as data URIs; scaled by the model's own processor only"),
        ("missing", "The sizes to which the processor of model tiny-vlm scales images"),
        ("decoding", "Temperature 0 (greedy), top_p 1; at most 32 tokens per answer; no seed"),
        ("load", "1 request in flight per worker; 1 warm-up request, not counted; requests sent over HTTP"),
        ("load", "through hpcbench's wrapper before the engine; 1 worker, no GPU for the model"),
        ("metrics", "signature `anls|tau:0.5|incl|len:norm|case:lower|ws:collapse|unicode:nfc|v1`"),
        ("statistics", "12 samples of 6 documents"),
        ("statistics", "no test was made"),
        ("outcomes", "12 asked: 12 responded"),
        ("software", "by hpcbench 0.1.0 under Python 3.11.7, RUN_MODE prod, seed of the plan 0"),
        ("missing", "revision of model tiny-vlm"),
        ("missing", '"Wilson, effective sample size 6": this version of hpcbench does not compute it'),
        ("references", "Biten et al. 2019"),
    ):  # fmt: skip
        assert text in section(found, name), (name, text)


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"task__generation__temperature": 0.7}, "decoding", "Temperature 0.7, top_p"),
        ({"task__generation__seed": 17}, "decoding", "seed 17"),
        ({"task__generation__max_tokens": 99}, "decoding", "at most 99 tokens"),
        ({"task__where": "pages < 3"}, "data", "samples for which `pages < 3` holds, then at most"),
        ({"task__sample": {"size": 7, "by": "x", "seed": None}}, "data",
         "a random sample of 7, stratified by `x` (seed 0)"),
        ({"task__images": "file"}, "images", "read by the engine from the files that requests name"),
        ({"dataset__options": {"dpi": 200}}, "images", "rendered at 200 dpi"),
        ({"model__min_pixels": 3136, "model__max_pixels": 1003520}, "images",
         "(limits by the model's definition: smallest 3136 pixels, largest 1003520 pixels)"),
        ({"model__engine_options": {"processor": {"max_pixels": 5}}}, "images",
         'settings of the engine for it: `{"processor": {"max_pixels": 5}}`'),
        ({"model__engine": "remote"}, "missing", "How the endpoint of run task vqa scales images."),
        ({"task__judge": {"of": "other", "pages": False}}, "images", "No image was sent."),
        ({"task__output_schema": "prompt"}, "prompts", "the JSON Schema of the ML task follows the prompt"),
        ({"model__dtype": "auto"}, "missing", "leaves it to the engine (`dtype: auto`)"),
        ({"model__revision": "a" * 40}, "models", f"revision {'a' * 40}"),
        ({"model__source": "hf://org/name"}, "models", "Source: hf://org/name"),
        ({"model__engine": "remote"}, "missing", "The hardware behind the endpoint"),
        ({"model__engine": "own"}, "missing", "The version of engine own"),
        ({"metrics": [{"name": "anls", "plugin": "gone"}]}, "metrics", "plugin gone is not installed here"),
    ],
)  # fmt: skip
def test_another_setting_is_another_sentence(
    tmp_path: Path, change: dict[str, Any], name: str, text: str
) -> None:
    here = unpack(tmp_path)[WHOLE]
    assert text not in section(methods(here), name)
    assert text in section(methods(changed(here, **change)), name)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ({}, "requests sent over HTTP through hpcbench's wrapper before the engine"),
        ({"route": "direct"}, "requests sent over HTTP to the engine's own socket"),
        ({"route": "direct and proxied"}, "partly to the engine's own socket and partly through"),
        ({"protocol": "grpc"}, "requests sent over gRPC through hpcbench's wrapper"),
        ({"protocol": "grpc"}, "sent as bytes beside the request"),
    ],
)
def test_protocol_and_route_of_the_requests_are_named(
    tmp_path: Path, load: dict[str, str], text: str
) -> None:
    here = unpack(tmp_path)[WHOLE]
    whole = json.loads(here.performance_file.read_text())
    whole["run_tasks"]["vqa"]["load"] |= load
    here.performance_file.write_text(json.dumps(whole))
    found = methods(Experiment(here.path))
    assert text in section(found, "load") + section(found, "images")


def test_what_the_processor_beside_the_weights_does_to_images_is_named(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    measured = json.loads(here.manifest_file.read_text())["measured"]
    measured["image_processing"] = {"tiny-vlm": {"do_resize": True, "max_pixels": 14112}}
    found = methods(rewritten(here, measured=measured))
    assert (
        'own processor only, with `{"do_resize": true, "max_pixels": 14112}` in its configuration'
        in section(found, "images")
    )
    assert "scales images" not in section(found, "missing")


def test_how_a_module_sends_requests_and_images_is_not_claimed(tmp_path: Path) -> None:
    found = methods(changed(unpack(tmp_path)[WHOLE], ml_task__module="own.py"))
    assert "requests sent" not in section(found, "load")
    assert section(found, "images") == (
        "vqa: The module `own.py` decides which images it sends, and in which size."
    )


def test_another_version_of_a_metric_is_not_cited(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    text = here.metrics_file.read_text()
    here.metrics_file.write_text(text.replace("unicode:nfc|v1", "unicode:nfc|v0"))
    found = methods(Experiment(here.path))
    assert "the installed version of the metric has another signature" in section(found, "metrics")
    assert section(found, "references") == ""


def test_a_path_of_this_machine_is_not_printed(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    source = here.resolved.run_tasks[0].dataset.source
    assert source.startswith("/")
    assert source not in markdown(methods(here))


def test_missing_files_are_named_and_nothing_is_assumed(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    here.performance_file.unlink()
    here.outcome_file.unlink()
    found = methods(here)
    assert "in flight" not in section(found, "load")
    assert "Load and hardware of run task vqa." in section(found, "missing")
    assert "How the experiment ended" in section(found, "missing")


def test_of_imported_answers_only_the_scores_are_known(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    kit = {"kit": "lmms-eval", "kit_version": "0.5", "model": "org/m"}
    found = methods(rewritten(here, imported=kit, environments={}))
    text = markdown(found)
    assert (
        "imported the answers of tiny-vlm from lmms-eval 0.5, which names the model org/m" in text
    )
    for word in (
        "temperature", "Temperature", "{{ question }}", "in flight", "GPU for the model", "byte for byte",
    ):  # fmt: skip
        assert word not in text, word
    assert "12 samples of 6 documents" in section(found, "statistics")
    assert "decoding parameters" in section(found, "missing")


def test_two_models_are_compared_by_a_test_with_its_correction(tmp_path: Path) -> None:
    wrong = [*right(4, 1), *["wrong"] * 16]
    here = answered(tmp_path, {"good": right(20, 1), "bad": wrong})
    found = methods(here)
    text = section(found, "statistics")
    assert "good with bad: exact_match on d; McNemar's exact test." in text
    assert "Clopper and Pearson" in text
    assert "no test was made" not in text
    for citation in ("Holm 1979", "McNemar 1947", "Clopper and Pearson 1934"):
        assert citation in section(found, "references")


def test_samples_of_one_document_give_a_permutation_test(tmp_path: Path) -> None:
    from tests.unit.small import record

    records = [record(n, document=f"d{n // 2}") for n in range(60)]
    wrong = ["wrong" if n % 3 else str(n) for n in range(60)]
    here = answered(tmp_path, {"good": right(60, 1), "bad": wrong}, records)
    found = methods(here)
    assert "in whole documents (swapped clusters, 9999 random ways)" in section(found, "statistics")
    assert "Phipson and Smyth 2010" in section(found, "references")


def test_failures_and_how_they_count_are_reported_for_each_policy(tmp_path: Path) -> None:
    here = answered(
        tmp_path, {"a": ["0", None], "b": ["0", None]}, tasks={"b": {"on_failed": "exclude"}}
    )
    text = section(methods(here), "outcomes")
    assert "2 asked: 1 responded, 1 failed" in text
    assert "failed samples count as the worst value of the metric" in text
    assert "failed samples are left out" in text


def test_answers_of_earlier_experiments_are_counted_and_their_experiments_named(
    tmp_path: Path,
) -> None:
    here = unpack(tmp_path)[WHOLE]
    before = section(methods(here), "outcomes")
    assert before and "earlier" not in before
    run_task = here.resolved.run_tasks[0].name
    Reused({run_task: {"20261128-0403-demo-dgzx": 3, "20261127-0403-demo-abcd": 1}}).write(here)
    after = section(methods(here), "outcomes")
    assert (
        "4 of the answers are of earlier experiments, to the same requests "
        "(20261127-0403-demo-abcd: 1, 20261128-0403-demo-dgzx: 3)"
    ) in after


def test_a_gate_and_its_margins_are_part_of_the_statistics(tmp_path: Path) -> None:
    here = unpack(tmp_path)[WHOLE]
    check = {
        "run_task": "vqa", "what": "anls", "kind": "quality", "level": "critical", "baseline": 1.0,
        "candidate": 1.0, "difference": 0.0, "low": -0.1, "high": 0.1, "margin": 0.125,
        "verdict": "pass", "why": "",
    }  # fmt: skip
    verdict = {"version": 1, "baseline": "before", "candidate": here.id, "policy": "nightly",
               "verdict": "GO", "reasons": [], "checks": [check]}  # fmt: skip
    here.report_dir.mkdir(exist_ok=True)
    write_json(here.verdict_file, verdict)
    found = methods(here)
    text = section(found, "statistics")
    assert "compared the experiment with the baseline before by the policy nightly: GO." in text
    assert "vqa, anls: margin 0.125 (critical)." in text
    assert "The confidence level of the gate's policy nightly." in section(found, "missing")


# --- forms ----------------------------------------------------------------------------------------------


def test_latex_takes_any_prompt_as_text(tmp_path: Path) -> None:
    prompt = "50 % of {{ a_b }}\n\\end{quote} \\input{x} # $1 & `c`"
    here = changed(unpack(tmp_path)[WHOLE], prompt__user=prompt)
    text = latex(methods(here))
    assert r"50 \% of \{\{ a\_b \}\}" in text
    assert "\\input{x}" not in text
    assert text.count(r"\begin{quote}") == text.count(r"\end{quote}") == 1
    assert text.count(r"\begin{itemize}") == text.count(r"\end{itemize}")
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles_inside_a_paper(tmp_path: Path) -> None:
    prompt = "50 % of {{ a_b }}\n\n\\end{quote} \\input{x} # $1 & `c` ~ ^ Ж"
    here = changed(unpack(tmp_path)[WHOLE], prompt__user=prompt)
    (tmp_path / "methods.tex").write_text(latex(methods(here)))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage[T1,T2A]{fontenc}"
        r"\begin{document}Before.\input{methods.tex}After.\end{document}"
    )
    argv = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([*argv, "paper.tex"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_the_verb_prints_all_three_forms(tmp_path: Path, cli: Cli) -> None:
    unpack(tmp_path)
    assert cli("report", WHOLE, "--methods").startswith(f"# Methods of {WHOLE}\n\n## Models\n")
    assert "\\subsection*{Models}" in cli("report", WHOLE, "--methods", "--latex")
    found = cli.json("report", WHOLE, "--methods", "--json")
    assert found["experiment"] == WHOLE
    assert found["sections"][0]["name"] == "models"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--latex"], "--latex is for the methods section"),
        (["--methods", "--to", "x"], "--methods prints to standard output"),
        (["--methods", "--format", "html"], "--methods prints to standard output"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, cli: Cli, words: list[str], message: str
) -> None:
    unpack(tmp_path)
    assert message in cli.err("report", WHOLE, *words)


@pytest.mark.parametrize("name", CITATIONS)
def test_a_citation_is_that_of_the_metrics_docstring(name: str) -> None:
    kind = plugins.load("metrics", name)
    reported = " ".join((inspect.getdoc(import_module(kind.__module__)) or "").split())
    author, _, rest = CITATIONS[name].partition(", ")
    title = re.search(r'"(.*?)"', rest)
    assert author in reported
    assert title is not None
    assert title[1] in reported
    for number in re.findall(r"arXiv \d+\.\d+", rest):
        assert number in reported
