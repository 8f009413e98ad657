"""Planning before anything is here: what a dry run and an estimate show, that they write nothing, and what
is refused before anything is fetched."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.at_site import OURS
from hpcbench.cli.main import main
from hpcbench.cli.parse import parser, words_of
from hpcbench.data.copies import Cache
from hpcbench.submit.image_check import cuda_verdict, judge, judge_fetched, needed_bytes
from hpcbench.submit.plan_facts import Facts, Gpus, ImageFacts, ModelFacts, Size, Weights, look
from hpcbench.submit.preview import wrapped
from tests.unit.command import Cli
from tests.unit.small import record, resolved, run_task, write_dataset

PLAN = """\
name: plan
run_tasks:
  - {name: far, ml_task: vqa, model: Qwen/Qwen2.5-VL-7B-Instruct, dataset: far, prompt: ask}
  - {name: said, ml_task: vqa, model: Qwen/Qwen2.5-VL-7B-Instruct, dataset: said, prompt: ask, limit: 30}
  - {name: near, ml_task: vqa, model: Qwen/Qwen2.5-VL-7B-Instruct, dataset: near, prompt: ask}
"""

SITE = """\
name: default
executor: slurm
slurm:
  partition: gpu
  gpu_gres: gpu:a100
  partitions: {gpu: {gpus: {a100: 4}, gpu_memory_gb: {a100: 40}}}
"""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.utime")


class _Watch:
    """Files that a process writes, and hosts it connects to, while it is watched."""

    on = False
    seen: list[str] = []  # noqa: RUF012 - the hook of a process stays for good, and so does its list

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and flags & _WRITES and not path.startswith("/dev/"):
                self.seen.append(f"{event} {path}")
        elif event in _CHANGES or event in ("socket.connect", "socket.getaddrinfo"):
            self.seen.append(f"{event} {arguments}")


_watch = _Watch()
sys.addaudithook(_watch)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Whatever is written or connected to from here to the end of the test."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    _watch.seen.clear()
    yield _watch.seen
    _watch.on = False


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of a model of the hub; one dataset is here, two are not, one of these says how many it has."""
    for name in ("HPCBENCH_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    source = write_dataset(tmp_path / "pages", [record(number) for number in range(20)])
    rest = "annotations: a.jsonl\nfields: [question]\n"
    put(tmp_path, "registries/datasets/far.yaml", f"name: far\nsource: s3://bucket/far\n{rest}")
    put(
        tmp_path,
        "registries/datasets/said.yaml",
        f"name: said\nsource: hf://datasets/o/said\nsamples: 5000\nsize_gb: 2.5\n{rest}",
    )
    put(tmp_path, "registries/datasets/near.yaml", f"name: near\nsource: file://{source}\n{rest}")
    put(tmp_path, "registries/prompts/ask.yaml", 'name: ask\nuser: "{{ question }}"\n')
    put(tmp_path, "config/hpcbench/sites/default.yaml", f"{SITE}home: {tmp_path}/home\n")
    put(tmp_path, "plan.yaml", PLAN)
    return tmp_path / "plan.yaml"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def with_cuda(plan: Path, cuda: str) -> None:
    file = plan.parent / "config/hpcbench/sites/default.yaml"
    file.write_text(f'{file.read_text()}container: {{cuda: "{cuda}", driver: "550.54"}}\n')


# --- nothing is written, nothing is asked -----------------------------------------------------------


def test_what_is_written_is_seen(tmp_path: Path, watched: list[str]) -> None:
    _watch.on = True
    (tmp_path / "used").touch()
    _watch.on = False
    assert any("used" in one for one in watched)


@pytest.mark.parametrize("asked", ["--dry-run", "--estimate"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("brought", [False, True])
def test_a_look_at_a_plan_writes_nothing_and_asks_no_server(
    plan: Path, asked: str, as_json: list[str], brought: bool, watched: list[str]
) -> None:
    if brought:  # what is in the cache must not be marked as used either
        assert main(["data", "sync", "near"]) == 0
    main(["submit", str(plan), asked, *as_json])  # what is imported late is imported now
    watched.clear()
    _watch.on = True
    code = main(["submit", str(plan), asked, *as_json])
    _watch.on = False
    assert code == 0
    assert watched == []


def test_a_package_of_the_plan_is_not_built_by_a_look(
    plan: Path, cli: Cli, watched: list[str]
) -> None:
    put(
        plan.parent,
        "registries/packages/mine.yaml",
        "name: mine\nsource: {type: pypi, name: mine, version: '1.0'}\n"
        "provides: {datasets: [my_pages]}\n",
    )
    file = plan.parent / "registries/datasets/near.yaml"
    file.write_text(f"{file.read_text()}iterator: my_pages\npackage: mine\n")
    assert "near: samples unknown" in cli("submit", plan, "--dry-run")
    assert not (plan.parent / "home").exists()


# --- what is shown ----------------------------------------------------------------------------------


def test_a_dry_run_shows_what_definitions_say_at_80_columns(plan: Path, cli: Cli) -> None:
    cli("data", "sync", "near")
    out, err = cli.both("submit", plan, "--dry-run")
    for line in (
        "far: samples unknown, dataset far is not here yet (assumed: 1000)",
        "said: 30 samples",
        "near: 20 samples",
        "said: to fetch, about 2.5 GB (its definition)",
        "to fetch, about 16.6 GB (8.3 billion parameters, 2 bytes each)",
        "image 13.0 (its definition); site unknown (set `container.cuda`)",
        "15.5 GiB of weights on each GPU; its definition asks for 26 GB",
        "1 × a100, 40 GiB each, of which 90 % for the engine (assumed)",
        "--served-model-name Qwen/Qwen2.5-VL-7B-Instruct",
        "#SBATCH --gres=gpu:a100:1",
    ):
        assert line in out, line
    shown, _, script = out.partition("  sbatch of")
    assert script
    assert max(map(len, shown.splitlines())) <= 80
    assert "is not locked" in err, "what prod asks for is told, and stops nobody who only looks"


def test_an_estimate_counts_what_is_not_here_and_says_so(plan: Path, cli: Cli) -> None:
    reported = cli.json("submit", plan, "--estimate", "--json")
    assert reported["samples"] == {"far": None, "said": 30, "near": None}
    assert reported["assumed_samples"] == ["far", "near"]
    assert reported["datasets"]["said"] == {
        "here": False,
        "bytes": 2.5e9,
        "source": "its definition",
    }
    model = reported["models"]["far"]
    assert (model["weights"]["bytes"], model["image"]["cuda"]) == (16.6e9, "13.0")
    assert model["gpus"]["memory_gb"] == 40
    assert model["command"][:2] == ["python", "-m"]


def test_the_cost_at_a_provider_is_shown_as_far_as_it_is_known(plan: Path, cli: Cli) -> None:
    priced = (
        "name: m\nengine: remote\nengine_options: {base_url: 'https://g.example/v1', model: x}\n"
        "prices: {input: 1, output: 2.5, currency: EUR}\n"
    )
    put(plan.parent, "registries/models/m.yaml", priced)
    asked = ["submit", str(plan), "--set", "run_tasks.said.model=m"]
    budget = ["--set", "max_cost=5", "--set", "max_requests=2000"]
    full = "answers of full length 0.0768 EUR; prompts and retries are not included"
    one = [*asked, "--set", "only=[said]"]
    for how in ("--dry-run", "--estimate"):
        shown = " ".join(cli(*one, *budget, how).split())
        assert f"{full}; budget: 2,000 requests, 5 EUR" in shown
        assert full in " ".join(cli(*one, how).split())
        assert "full length" not in cli(*asked, "--set", "run_tasks.far.model=m", how), "how many?"
        found = cli.json(*one, *budget, how, "--json")
        assert found["full_answers_cost"] == {"EUR": pytest.approx(0.0768)}
        assert found["budget"] == {"max_requests": 2000, "max_tokens": None, "max_cost": 5.0}
        shown = cli("submit", plan, how)
        assert "full length" not in shown and "budget" not in shown, "no prices and no budget"


def test_references_to_secrets_are_not_read_and_not_shown(
    plan: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very-secret")
    model = "name: m\nsource: hf://o/m\nengine: vllm\nenv: {HF_TOKEN: '${env:HF_TOKEN}'}\n"
    put(plan.parent, "registries/models/m.yaml", model)
    asked = ["submit", str(plan), "--dry-run", "--set", "run_tasks.far.model=m"]
    shown = "".join(cli.both(*asked))
    assert "HF_TOKEN=***" in shown
    assert "very-secret" not in shown


@given(st.lists(st.text("abc-_/{}\" '$", min_size=1, max_size=20), min_size=1, max_size=20))
def test_a_wrapped_command_is_the_command_and_fits_80_columns(words: list[str]) -> None:
    lines = list(wrapped(words, "    "))
    text = "\n".join(lines)
    assert shlex.split(text.replace("\\\n", " ")) == words
    longest = max(len(shlex.quote(word)) for word in words)
    assert all(len(line) <= max(80, 2 * longest + 60) for line in lines)


# --- what certainly cannot run ----------------------------------------------------------------------


def test_submit_refuses_an_image_for_a_newer_cuda_before_anything_is_fetched(
    plan: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cuda(plan, "12.4")
    monkeypatch.setenv("RUN_MODE", "dev")
    put(
        plan.parent,
        "registries/images/vllm-openai.yaml",
        "name: vllm-openai\nreference: docker://vllm/vllm-openai:v0.31.0\n"
        f'digest: sha256:{"0" * 64}\ncuda: "13.0"\n',
    )
    err = cli.err("submit", plan)
    assert "images/vllm-openai.yaml:4:7: image 'vllm-openai' is built for CUDA 13.0" in err
    assert "the driver of this site supports CUDA 12.4" in err
    assert "VLLM_ENABLE_CUDA_COMPATIBILITY" in err
    assert len(err.strip().splitlines()) == 1
    assert not (plan.parent / "home").exists()
    for asked in ("--dry-run", "--estimate"):
        out, err = cli.both("submit", plan, asked, code=2)
        assert out, "it is shown all the same"
        assert "built for CUDA 13.0" in err


def test_forward_compatibility_that_the_model_asks_for_is_a_warning(plan: Path, cli: Cli) -> None:
    with_cuda(plan, "12.4")
    put(
        plan.parent,
        "registries/models/m.yaml",
        "name: m\nsource: hf://o/m\nengine: vllm\nimage: vllm-openai\n"
        'env: {VLLM_ENABLE_CUDA_COMPATIBILITY: "1"}\n',
    )
    asked = [f"run_tasks.{name}.model=m" for name in ("far", "said", "near")]
    settings = [word for one in asked for word in ("--set", one)]
    assert "! " in (err := cli.err("submit", plan, "--dry-run", *settings, code=0))
    assert "only with forward compatibility" in err


MAJOR, MINOR = st.integers(9, 19), st.integers(0, 9)


@given(MAJOR, MINOR, MAJOR, MINOR, st.booleans())
def test_a_driver_runs_every_cuda_up_to_its_own_major_version(
    image: int, image_minor: int, driver: int, driver_minor: int, forward: bool
) -> None:
    found = cuda_verdict(f"{image}.{image_minor}", f"{driver}.{driver_minor}", forward=forward)
    expected = "runs" if image <= driver else "forward" if forward else "too old"
    assert found == expected


def found(
    *, room: float | None = 40, cuda: str = "12.4", weights: float | None = 16e9, cache: float = 0,
    image: ImageFacts | None = None, **model: Any,
) -> list[tuple[str, bool]]:  # fmt: skip
    """Findings about a model on GPUs of so many GiB: messages, and whether they are certain."""
    task = run_task(model={"image": "docker://r/i:1", **model})
    known = ModelFacts(
        task.model,
        Size(False, None),
        Weights(weights, "its definition", cache or None),
        image or ImageFacts("docker://r/i:1", Size(False, None)),
        Gpus(room, "a100", cuda, None, "the site profile"),
    )
    facts = Facts({"rt": known}, {}, {"rt": None})
    return [(one.problem.message, one.certain) for one in judge(resolved(task), facts)]


def test_weights_that_are_more_than_the_gpus_hold_are_refused() -> None:
    ((message, certain),) = found(weights=90e9)
    assert certain
    assert (
        "needs 83.8 GiB of weights on its GPU, but the site profile has GPUs of 40 GiB" in message
    )
    assert found(weights=90e9, gpus=4) == []
    assert found(weights=90e9, gpus=2, nodes=2) == [], "the memory of all nodes counts"
    ((_, certain),) = found(weights=40e9, engine_options={"gpu-memory-utilization": 0.5})
    assert certain


@pytest.mark.parametrize(
    ("why", "given"),
    [
        ("weights and cache fill more than an engine's share", {"weights": 30e9, "cache": 12e9}),
        ("the definition asks for more", {"gpu_memory_gb": 48}),
        ("an engine nobody knows may move weights elsewhere", {"weights": 90e9, "engine": "own"}),
        ("a CUDA that only the image's name tells", {
            "image": ImageFacts("docker://r/i:cu130", Size(False, None), "13.0", "its name")}),
    ],
)  # fmt: skip
def test_what_only_probably_cannot_run_is_a_warning(why: str, given: dict[str, Any]) -> None:
    assert [certain for _, certain in found(**given)] == [False], why


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"weights": None},
        {"room": None, "weights": 900e9},
        {"weights": 90e9, "gpus": 0},
        {"weights": 90e9, "engine_options": {"quantization": "fp8"}},
        {"image": ImageFacts("i", Size(False, None), "12.9", "its definition")},
        {"gpu_memory_gb": 80, "room": 79.6},
    ],
)
def test_what_fits_or_is_not_known_is_silent(given: dict[str, Any]) -> None:
    assert found(**given) == []


def test_weights_that_are_here_are_measured_and_their_config_gives_the_cache(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    os.truncate(put(folder, "model.safetensors", ""), 30 * 2**30)  # sparse: no disk is filled
    config = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    put(folder, "config.json", json.dumps({"text_config": {**config, "head_dim": 128}}))
    model = {"source": str(folder), "context_length": 65536, "gpus": 1, "parameters_b": 40}
    plan = resolved(run_task(model=model))
    cache = Cache(tmp_path / "cache", plan.site)
    known = look(plan, cache).models["rt"]
    assert known.size.here
    assert known.weights.bytes == 30 * 2**30, "the least that any source says"
    assert known.weights.cache_bytes == 2 * 65536 * 32 * 8 * 128 * 2
    alone, whole = needed_bytes(known)
    assert (alone, whole) == (30 * 2**30, 38 * 2**30)


QWEN = {"num_attention_heads": 28, "num_key_value_heads": 4}
WITH_TOWER = {"text_config": {"num_attention_heads": 16}, "vision_config": {"num_heads": 6}}


def heads(config: dict[str, Any], **model: Any) -> list[tuple[str, bool, str | None]]:
    """Findings about a model with this config.json: messages, whether they are certain, remedies."""
    with tempfile.TemporaryDirectory() as folder:
        put(Path(folder), "config.json", json.dumps(config))
        task = run_task(model={"source": folder, "gpus": 0, **model})
        plan = resolved(task)
        fetched = judge_fetched(plan, ())
        of_all = judge(plan, look(plan, Cache(Path(folder), plan.site)))
        assert tuple(one for one in of_all if "heads" in one.problem.message) == fetched
        assert judge_fetched(plan, fetched) == (), "nothing is said twice"
    return [(one.problem.message, one.certain, one.problem.remedy) for one in fetched]


@pytest.mark.parametrize(
    ("config", "model", "said"),
    [
        (QWEN, {"parallel": {"tensor": 8}}, "has 28 attention heads, but tensor 8 "),
        (QWEN, {"parallel": {"tensor": 7}}, "has 4 heads of keys and values, but tensor 7 "),
        (QWEN, {"gpus": 8}, "has 28 attention heads, but tensor 8 "),
        (QWEN, {"gpus": 8, "engine": "sglang", "engine_options": {"tp-size": 8}}, "28 attention"),
        ({"text_config": QWEN}, {"nodes": 2, "parallel": {"tensor": 16}}, "28 attention heads"),
    ],
)
def test_heads_that_a_tensor_cannot_share_equally_are_refused(
    config: dict[str, Any], model: dict[str, Any], said: str
) -> None:
    ((message, certain, remedy),) = heads(config, **model)
    assert certain
    assert said in message
    assert remedy is not None
    assert remedy.startswith("choose a `tensor` of 1, 2, 4, 28")


def test_heads_of_an_image_tower_that_cannot_be_shared_give_a_warning_and_the_option() -> None:
    four = {"parallel": {"tensor": 4}}
    ((message, certain, remedy),) = heads(WITH_TOWER, **four)
    assert not certain, "some engines pad them"
    assert message.startswith("the image tower of model 'm' has 6 attention heads")
    assert remedy is not None
    assert "mm_encoder_tp_mode: data" in remedy
    for engine, option in (
        ("vllm", {"mm-encoder-tp-mode": "data"}),
        ("sglang", {"mm_enable_dp_encoder": True}),
    ):
        assert heads(WITH_TOWER, **four, engine=engine, engine_options=option) == []


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (QWEN, {"parallel": {"tensor": 4, "pipeline": 2}}),
        ({**QWEN, "num_key_value_heads": 2}, {"parallel": {"tensor": 4}}),
        (QWEN, {"engine": "own", "parallel": {"tensor": 8}}),
        (QWEN, {"gpus": 8, "engine_options": {"data_parallel_size": 8}}),
        (QWEN, {"parallel": {"tensor": 8}, "engine_options": {"hf_overrides": {"x": 1}}}),
        ({**QWEN, "num_attention_heads": 8, "kv_lora_rank": 512}, {"parallel": {"tensor": 8}}),
        ({}, {"parallel": {"tensor": 8}}),
        ({"num_attention_heads": "28"}, {"parallel": {"tensor": 8}}),
    ],
)
def test_heads_that_fit_or_are_not_known_are_silent(
    config: dict[str, Any], model: dict[str, Any]
) -> None:
    assert heads(config, **model) == []


def test_a_tensor_that_does_not_fit_is_refused_at_its_place(plan: Path, cli: Cli) -> None:
    put(plan.parent, "weights/config.json", json.dumps(QWEN))
    model = f"name: m\nsource: {plan.parent}/weights\nengine: vllm\nparallel:\n  tensor: 8\n"
    put(plan.parent, "registries/models/m.yaml", model)
    asked = [f"run_tasks.{name}.model=m" for name in ("far", "said", "near")]
    settings = [word for one in asked for word in ("--set", one)]
    said = cli.err("submit", plan, "--dry-run", *settings)
    assert "registries/models/m.yaml:5:11: model 'm' has 28 att" in said


# --- caches of the site that counts -----------------------------------------------------------------


def test_verbs_of_caches_take_the_site_that_is_named_and_the_plans_own(
    plan: Path, cli: Cli
) -> None:
    folder = plan.parent
    put(folder, "config/hpcbench/sites/other.yaml", f"name: other\nhome: {folder}/other\n")
    put(folder, "weights/config.json", "{}")
    model = f"name: m\nsource: file://{folder}/weights\nengine: vllm\n"
    put(folder, "registries/models/m.yaml", model)
    task = "{name: t, ml_task: vqa, model: m, dataset: near, prompt: ask}"
    put(folder, "other.yaml", f"name: plan\nsite: other\nrun_tasks:\n  - {task}\n")
    assert f"{folder}/other/cache/models" in cli("models", "fetch", "m", "--site", "other")
    assert f"{folder}/other/cache/datasets" in cli("data", "sync", "--plan", "other.yaml")
    assert main(["models", "verify", "--plan", "other.yaml"]) == 0
    assert "content_hash" in (folder / "registries/models/m.yaml").read_text()
    assert str(folder / "weights") in cli("--site", "other", "models", "list", "--json")
    assert not (folder / "home").exists()
    assert "names of models/ definitions, or --plan FILE" in cli.err("models", "fetch")


@pytest.mark.parametrize(
    "words", ["models fetch org/m --json", "models verify --repair org/m", "data prune --dry-run"]
)
def test_verbs_of_caches_are_passed_on_to_a_cluster_as_they_were_typed(words: str) -> None:
    asked = parser().parse_args([*words.split(), "--site", "lab"])
    again = [asked.verb, *words_of(asked, leave=OURS)]
    assert sorted(again) == sorted(words.split())
    assert again[:2] == words.split()[:2]
    assert vars(parser().parse_args(again)) == {**vars(asked), "site": None}


def test_files_of_this_machine_are_refused_for_a_cluster_elsewhere(plan: Path, cli: Cli) -> None:
    text = "name: lab\nssh: {host: nowhere.invalid}\n"
    put(plan.parent, "config/hpcbench/sites/lab.yaml", text)
    said = cli.err("models", "fetch", "--plan", "plan.yaml", "--site", "lab")
    assert "--plan names a file of this machine" in said
