"""Two arms of one plan: what a short setting means, what they share, and how they are laid out as work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.planning import FEWEST_PAIRS, block_size, plan_work
from hpcbench.registry.ab import expanded, side_by_side
from hpcbench.schema.plan import Arms, ResolvedPlan
from tests.unit.command import Cli
from tests.unit.registries import PLAN, Files
from tests.unit.small import measured, plan_without_weights

NAMED = """\
name: several
run_tasks:
  - first
  - name: second
    ml_task: vqa
    model: {name: org/tiny, engine_options: {max_num_seqs: 4}}
    dataset: pages
    prompt: ask
    after: [first]
matrix:
  - models: [org/tiny]
    datasets: [pages]
    prompts: [ask]
    ml_task: vqa
"""

FIRST = "name: first\nml_task: vqa\nmodel: org/tiny\ndataset: pages\nprompt: ask\n"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write("run_tasks/first.yaml", FIRST)
    return made


def arms(files: Files, a: list[str], b: list[str], text: str = PLAN) -> ResolvedPlan:
    """The plan with two arms, as `hpcbench ab` makes it."""
    base = files.resolved(text)
    both = [files.resolved(text, *expanded(base, settings)) for settings in (a, b)]
    return side_by_side(both[0], both[1], Arms(a=tuple(a), b=tuple(b)), ())


# --- what a setting means -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "meant"),
    [
        ("model.engine_options.x=1",
         ["models/org/tiny:engine_options.x=1", "run_tasks.1.model.engine_options.x=1"]),
        ("model.dtype=float16", ["models/org/tiny:dtype=float16"]),
        ('prompt.user="a = b"', ['prompts/ask:user="a = b"']),
        ("dataset.options.dpi=100", ["datasets/pages:options.dpi=100"]),
        ("model=org/large",
         ["run_tasks/first:model=org/large", "run_tasks.1.model=org/large", "matrix.0.models=[org/large]"]),
        (
            "generation.temperature=0",
            [
                "run_tasks/first:generation.temperature=0",
                "run_tasks.1.generation.temperature=0",
                "matrix.0.generation.temperature=0",
            ],
        ),
        ("parallelism=2", ["parallelism=2"]),
        ("models/org/tiny:dtype=float16", ["models/org/tiny:dtype=float16"]),
        ("run_tasks.second.limit=3", ["run_tasks.second.limit=3"]),
    ],
)  # fmt: skip
def test_a_short_setting_means_every_run_task(files: Files, short: str, meant: list[str]) -> None:
    assert expanded(files.resolved(NAMED), [short]) == meant


def test_a_setting_reaches_every_model_whether_named_or_chosen(files: Files) -> None:
    found = arms(
        files,
        ["model.engine_options.max_num_seqs=8"],
        ["model.engine_options.max_num_seqs=9"],
        NAMED,
    )
    own = {one.name: one.model.engine_options["max_num_seqs"] for one in found.run_tasks}
    assert set(own.values()) == {8, 9}
    assert all(value == (8 if name.endswith(".a") else 9) for name, value in own.items())


# --- side by side -------------------------------------------------------------------------------------


def test_arms_are_run_tasks_with_models_of_their_own_names(files: Files) -> None:
    found = arms(files, ["model.dtype=float16"], ["model.dtype=bfloat16"])
    assert [(one.name, one.pair, one.arm) for one in found.run_tasks] == [
        ("first.a", "first", "a"),
        ("first.b", "first", "b"),
    ]
    assert [one.model.name for one in found.run_tasks] == ["org/tiny.a", "org/tiny.b"]
    assert found.pairs == {"first": ("first.a", "first.b")}
    assert found.origins["models/org/tiny.a"] == found.origins["models/org/tiny"]


def test_arms_that_differ_in_the_question_alone_share_one_load(files: Files) -> None:
    found = arms(files, ["generation.temperature=0"], ["generation.temperature=1"])
    assert {one.model.name for one in found.run_tasks} == {"org/tiny"}


def test_prompts_of_one_name_and_two_texts_get_two_names(files: Files) -> None:
    found = arms(files, [], ['prompt.user="Read: {{ question }}"'])
    assert [one.prompt.name for one in found.run_tasks] == ["ask.a", "ask.b"]
    assert found.run_task("first.a").prompt.user != found.run_task("first.b").prompt.user


def test_a_name_that_is_as_long_as_names_may_be_stays_one(files: Files) -> None:
    long = "p" * 120
    files.write(f"prompts/{long}.yaml", f"name: {long}\nuser: '{{{{ question }}}}'\n")
    plan = PLAN.replace("prompt: ask", f"prompt: {long}")
    found = arms(files, [], ['prompt.user="Read: {{ question }}"'], plan)
    again = ResolvedPlan.model_validate_json(found.model_dump_json())
    names = {one.prompt.name for one in again.run_tasks}
    assert {len(name) for name in names} == {120}
    assert len(names) == 2


def test_what_came_after_a_run_task_comes_after_both_its_arms(files: Files) -> None:
    found = arms(files, [], ["generation.max_tokens=7"], NAMED)
    assert found.run_task("second.b").task.after == ("first.a", "first.b")


def test_run_tasks_in_which_nothing_differs_are_left_out(files: Files) -> None:
    said: list[str] = []
    both = [
        files.resolved(NAMED, *settings)
        for settings in ([], ["run_tasks.1.generation.max_tokens=7"])
    ]
    found = side_by_side(both[0], both[1], Arms(), (), said.append)
    assert [one.name for one in found.run_tasks] == ["second.a", "second.b"]
    assert found.run_task("second.a").task.after == ()
    assert "left out" in said[0]


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        ([], ["model.dtype=auto"], "do not differ"),
        (["parallelism=2"], ["parallelism=3"], "'parallelism' applies to the whole experiment"),
        (["seed=1"], [], "'seed' applies to the whole experiment"),
        ([], ["run_tasks.0.name=other"], "different run tasks"),
        ([], ["run_tasks.0.load={concurrency: [1, 2]}"], "different run tasks"),
        (["load={concurrency: [1, 2]}"], ["load={concurrency: [1, 2]}"], "point of a sweep"),
    ],
)
def test_what_arms_must_share_is_refused(
    files: Files, a: list[str], b: list[str], what: str
) -> None:
    with pytest.raises(UserError, match=what):
        arms(files, a, b)


def test_a_plan_with_arms_reads_back_as_it_was_written(files: Files) -> None:
    found = arms(files, ["model.dtype=float16"], ["model.dtype=bfloat16"])
    assert ResolvedPlan.model_validate_json(found.model_dump_json()) == found


# --- two plans ----------------------------------------------------------------------------------------


def two_plans(files: Files, first: str, second: str, said: list[str] | None = None) -> ResolvedPlan:
    """Two plans as `hpcbench ab A.yaml B.yaml` makes one of them."""
    both = [files.resolved(text) for text in (first, second)]
    say = [].append if said is None else said.append
    return side_by_side(both[0], both[1], Arms(plans=("A.yaml", "B.yaml")), (), say)


def plan_of(name: str, *entries: str, more: str = "") -> str:
    lines = "".join(f"  - {{{entry}, ml_task: vqa, prompt: ask}}\n" for entry in entries)
    return f"name: {name}\n{more}run_tasks:\n{lines}"


@pytest.fixture
def models(files: Files) -> Files:
    files.write("models/org/large.yaml", "name: org/large\nsource: ../../weights\nengine: vllm\n")
    pages = (files.registry / "datasets/pages.yaml").read_text()
    files.write("datasets/scans.yaml", pages.replace("name: pages", "name: scans"))
    return files


def test_run_tasks_of_two_plans_pair_by_ml_task_and_dataset(models: Files) -> None:
    said: list[str] = []
    first = plan_of(
        "one",
        "name: x, model: org/tiny, dataset: pages",
        "name: y, model: org/tiny, dataset: scans, after: [x]",
        "name: z, model: org/tiny, dataset: pages",
        more="parallelism: 2\n",
    )
    second = plan_of(
        "two",
        "name: z, model: org/large, dataset: pages, metrics: [cer]",
        "name: p, model: org/large, dataset: pages",
        "name: q, model: org/large, dataset: pages",
    )
    found = two_plans(models, first, second, said)
    assert found.pairs == {"x": ("x.a", "x.b"), "z": ("z.a", "z.b")}
    assert found.plan.name == "one-vs-two"
    assert found.run_task("z.a").model.name == "org/tiny.a"
    assert found.run_task("z.b").model.name == "org/large.b"
    assert {*found.origins} >= {"models/org/tiny.a", "models/org/large.b"}
    # every metric of either plan scores both arms
    names = [[metric.name for metric in found.run_task(one).metrics] for one in ("z.a", "z.b")]
    assert names[0] == names[1]
    assert names[0][-1] == "cer"
    assert said == [
        "A.yaml: run task y is left out: B.yaml has no further run task of vqa on scans",
        "B.yaml: run task q is left out: A.yaml has no further run task of vqa on pages",
        "for both arms A.yaml decides, where B.yaml differs: parallelism",
    ]
    assert found.arms is not None
    assert found.arms.texts("b") == ("B.yaml",)
    assert ResolvedPlan.model_validate_json(found.model_dump_json()) == found


def test_what_two_plans_run_after_keeps_its_order(models: Files) -> None:
    first = plan_of(
        "one",
        "name: x, model: org/tiny, dataset: pages",
        "name: y, model: org/tiny, dataset: scans",
    )
    second = plan_of(
        "two",
        "name: p, model: org/large, dataset: pages",
        "name: q, model: org/large, dataset: scans, after: [p]",
    )
    assert two_plans(models, first, second).run_task("y.b").task.after == ("x.a", "x.b")


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ("name: p, model: org/large, dataset: scans",
         "no run task of the same ML task and dataset"),
        ("name: x, model: org/tiny, dataset: pages", "do not differ"),
        ("name: p, model: org/large, dataset: pages, limit: 7",
         r"x and p choose different samples: limit None and 7 \(--limit N\)"),
        ("name: p, model: org/large, dataset: pages, split: easy, limit: 7",
         "split None and easy, limit None and 7 .write the same values"),
    ],
)  # fmt: skip
def test_two_plans_that_cannot_be_compared_are_refused(
    models: Files, second: str, what: str
) -> None:
    first = plan_of("one", "name: x, model: org/tiny, dataset: pages")
    with pytest.raises(UserError, match=what):
        two_plans(models, first, plan_of("two", second))


def test_a_budget_of_money_for_two_plans_with_prices_in_two_currencies_is_refused(
    models: Files,
) -> None:
    for name, currency in (("tiny", "USD"), ("large", "EUR")):
        model = (models.registry / f"models/org/{name}.yaml").read_text()
        prices = f"prices: {{input: 1, output: 2, currency: {currency}}}\n"
        models.write(f"models/org/{name}.yaml", model + prices)
    first = plan_of("one", "name: x, model: org/tiny, dataset: pages", more="max_cost: 5\n")
    second = plan_of("two", "name: x, model: org/large, dataset: pages")
    with pytest.raises(
        UserError, match="max_cost is one sum, and the models have prices in EUR, USD"
    ):
        two_plans(models, first, second)


# --- as work ------------------------------------------------------------------------------------------


@given(
    samples=st.integers(1, 100_000),
    workers=st.integers(1, 64),
    pace=st.floats(0.001, 600),
    load=st.just(0.0) | st.floats(1, 3600),
    flight=st.integers(1, 256),
)
def test_there_are_always_pairs_enough_and_never_a_block_without_samples(
    samples: int, workers: int, pace: float, load: float, flight: int
) -> None:
    size = block_size(samples, workers, pace, load, flight)
    assert size >= 1
    if samples >= FEWEST_PAIRS:
        assert samples // size >= FEWEST_PAIRS
    if samples >= 2 * workers:
        assert samples // size >= 2 * workers


def test_loads_of_their_own_make_blocks_longer() -> None:
    assert block_size(4000, 1, 2.0, 0.0) == 40  # at most a hundred pairs
    assert block_size(4000, 1, 2.0, 600.0) == 150  # a pair of blocks takes as long as a load
    assert block_size(200, 1, 2.0, 600.0) == 25  # but there are eight pairs


def test_both_arms_have_the_same_shards_and_one_array(files: Files) -> None:
    found = arms(files, ["model.dtype=float16"], ["model.dtype=bfloat16"])
    work = plan_work(found, measured(found, 200), {"first.a": 1.0, "first.b": 3.0})
    a, b = work.cuts
    assert (a.size, a.count) == (b.size, b.count)
    (group,) = work.groups
    assert set(group.run_tasks) == {"first.a", "first.b"}


@pytest.mark.parametrize(
    ("images", "groups"),
    [
        (("docker://r/vllm:1", "docker://r/vllm:2"), 1),
        ((None, "docker://r/vllm:2"), 1),
        (("docker://r/vllm:1", "runpod:r/vllm:1"), 2),
    ],
)
def test_arms_of_two_images_of_this_machine_are_of_one_array(
    files: Files, images: tuple[str | None, str | None], groups: int
) -> None:
    found = arms(files, ["model.dtype=float16"], ["model.dtype=bfloat16"])
    changed = [
        one.model_copy(update={"model": one.model.model_copy(update={"image": image})})
        for one, image in zip(found.run_tasks, images, strict=True)
    ]
    found = found.model_copy(update={"run_tasks": tuple(changed)})
    assert len(plan_work(found, measured(found, 200)).groups) == groups


def test_arms_that_ask_different_samples_are_refused(files: Files) -> None:
    found = arms(files, ["split=easy"], ["split=hard"])
    with pytest.raises(UserError, match="ask different numbers of samples: 30, 40"):
        plan_work(found, measured(found, {"first.a": 30, "first.b": 40}))


def test_no_more_workers_than_have_two_pairs_each(files: Files) -> None:
    found = arms(files, ["model.dtype=float16"], ["model.dtype=bfloat16"])
    plan = found.plan.model_copy(update={"parallelism": 50, "shard_size": 10})
    found = found.model_copy(update={"plan": plan})
    (group,) = plan_work(found, measured(found, 100)).groups
    assert group.workers == 5


# --- the verb -----------------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan over 100 samples whose model is an empty folder: a dry run looks no further."""
    return plan_without_weights(
        tmp_path,
        monkeypatch,
        "name: turns\nexecutor: local\nrun_tasks:\n"
        "  - {name: vqa, ml_task: vqa, model: tiny, dataset: pages, prompt: ask}\n",
    )


TWO = ("--a", "model.dtype=float16", "--b", "model.dtype=bfloat16")


def said(cli: Cli, *arguments: Any, code: int = 0) -> tuple[str, str]:
    found = cli.both("ab", *arguments, code=code)
    return found.out, found.err


def test_a_dry_run_tells_blocks_and_loads_and_touches_nothing(
    cli: Cli, plan: Path, tmp_path: Path
) -> None:
    out, _ = said(cli, plan, *TWO, "--limit", 80, "--dry-run")
    assert (
        "vqa: 80 samples in 8 pairs of blocks of 10; each pair of blocks costs about one model load"
        in out
    )
    assert "vqa.a: 80 samples in 8 shards" in out
    assert not (tmp_path / "home" / "experiments").exists()
    shared, _ = said(cli, plan, "--b", "generation.max_tokens=9", "--dry-run")
    assert "the engine loads the model once for both arms" in shared


def test_a_dry_run_says_when_arms_are_not_on_the_same_nodes(cli: Cli, plan: Path) -> None:
    out, _ = said(cli, plan, "--b", "resources.memory_gb=2", "--dry-run")
    assert "differ in resources, so they run in separate jobs" in out


def test_programs_get_the_work_as_json(cli: Cli, plan: Path) -> None:
    out, _ = said(cli, plan, *TWO, "--dry-run", "--json")
    assert set(json.loads(out)["samples"]) == {"vqa.a", "vqa.b"}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "the plan needs two arms"),
        (("--a", "nonsense"), "must have the form path.to.key=value"),
        (("--a", "model.dtyp=float16"), "dtype"),
        ((*TWO, "--metric", "anls_stars"), "anls"),
        ((*TWO, "--margin", "anls=-1"), "--margin"),
        ((*TWO, "--margin", "nobody=1"), "nobody"),
        ((*TWO, "--alpha", "5"), "--alpha"),
        ((*TWO, "--set", "stages=[inference]"), "without the stage 'evaluation'"),
    ],
)
def test_mistakes_are_one_line_each(
    cli: Cli, plan: Path, arguments: tuple[str, ...], what: str
) -> None:
    _, err = said(cli, plan, *arguments, "--dry-run", code=2)
    assert what in err
    assert "Traceback" not in err


def test_two_plans_are_asked_in_turns(cli: Cli, plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.yaml"
    (tmp_path / "registries/models/big.yaml").write_text(
        "name: big\nsource: ../../weights\nengine: vllm\n"
    )
    other.write_text(plan.read_text().replace("name: turns", "name: b").replace("tiny", "big"))
    out, err = said(cli, plan, other, "--limit", 80, "--dry-run")
    assert "vqa: 80 samples in 8 pairs of blocks of 10" in out
    assert "vqa.b: 80 samples in 8 shards" in out
    out, err = said(cli, plan, other, "--b", "limit=7", "--dry-run", code=2)
    assert "choose different samples" in err
    _, err = said(cli, "@last", other, code=2)
    assert "a second plan need one" in err


def test_a_plan_that_is_not_there_is_reported(cli: Cli, plan: Path) -> None:
    _, err = said(cli, "nowhere", *TWO, code=2)
    assert "no such plan" in err
    assert plan.exists()
