"""Agents that use the models of other run tasks: plans, requests to each model, mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hpcbench.agents.loop import Talk
from hpcbench.agents.tools import ToolResult
from hpcbench.errors import UserError
from hpcbench.planning import plan_work
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.agent import Agent
from hpcbench.schema.plan import Measured
from tests.unit.agents.scene import IMAGE, Model, Run, Tools
from tests.unit.small import resolved, run_task

QWEN = "Qwen/Qwen3-VL-2B-Instruct"
READER = {"name": "ocr_region", "model_of": "reads"}
ROLES = {"thinker": {"prompt": "Think."}, "writer": {"prompt": "Write.", "model_of": "reads"}}


def plan(tmp_path: Path, agent: object, **more: object) -> Path:
    shared = {"ml_task": "vqa", "dataset": "demo_vqa", "prompt": "demo_vqa"}
    tasks = [
        {"name": "thinks", "model": "tiny-vlm", **shared, "agent": agent},
        {"name": "reads", "model": QWEN, **shared, "generation": {"max_tokens": 9}, **more},
    ]
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump({"name": "two", "executor": "local", "run_tasks": tasks}))
    return path


def mistakes(path: Path) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_plan(path, locks=False)
    return [str(one).partition(": ")[2] for one in caught.value.problems]


def test_an_agent_has_the_models_of_the_run_tasks_that_it_names(tmp_path: Path) -> None:
    agent = {"tools": ["crop", READER], "agents": ROLES}
    found = load_plan(plan(tmp_path, agent), locks=False)
    thinks, reads = found.run_tasks
    assert thinks.agent is not None
    assert (thinks.agent.models_of, thinks.agent.reader) == (("reads",), "reads")
    (beside,) = found.beside(thinks).values()
    assert (beside.name, beside.model, beside.dataset) == ("thinks", reads.model, thinks.dataset)
    assert beside.task.generation.max_tokens == 9
    assert found.gpus_beside(thinks) == reads.model.gpus == 1
    assert found.gpus_beside(reads) == 0


@pytest.mark.parametrize(
    ("agent", "more", "said"),
    [
        ({"agents": {"a": {"prompt": "x", "model_of": "read"}}}, {}, "did you mean 'reads'?"),
        ({"tools": [{"name": "ocr_region", "model_of": "thinks"}]}, {}, "unknown run task 'thinks'"),
        ({"tools": [READER]}, {"repeats": 3}, "'reads' is 3 run tasks, with its repeats and points"),
        ({"tools": [{"name": "crop", "model_of": "reads"}]}, {}, "only 'ocr_region' can have"),
    ],
)  # fmt: skip
def test_a_run_task_whose_model_cannot_be_used_is_one_line(
    tmp_path: Path, agent: object, more: dict[str, object], said: str
) -> None:
    assert any(said in one for one in mistakes(plan(tmp_path, agent, **more)))


def test_a_job_has_the_gpus_of_all_models_of_its_agent() -> None:
    agent = {"tools": [READER]}
    large = {"name": "large", "gpus": 2, "image": "venv:/x", "source": "/w", "engine": "vllm"}
    small = {**large, "name": "small", "gpus": 1, "replicas_per_node": 4}
    found = resolved(run_task("thinks", model=small, agent=agent), run_task("reads", model=large))
    names = [one.name for one in found.run_tasks]
    measured = Measured(
        samples=dict.fromkeys(names, 10), dataset_hashes=dict.fromkeys(names, "sha256:1"), model_hashes={}
    )  # fmt: skip
    groups = {group.run_tasks[0]: group for group in plan_work(found, measured).groups}
    assert (groups["thinks"].gpus, groups["reads"].gpus) == (1 + 2, 2)
    assert groups["thinks"].replicas == 1, "its engines have the worker's GPUs to themselves"


def test_each_agent_asks_its_own_model_in_the_form_that_this_model_knows() -> None:
    agent = Agent.model_validate({"tools": ["look"], "agents": ROLES})
    hand_over = ("hand_over", '{"agent": "writer"}')
    run = Run(Model([[("look", "{}")], [hand_over], "42"]), agent=agent)
    run.others = {"reads": Talk(as_text=True)}
    end = run.go()
    assert end is not None
    assert (end.exit, end.text) == ("answered", "42")
    assert run.model.models == ["", "", "reads"]
    _, functions = run.model.asked[1]
    assert functions
    messages, functions = run.model.asked[2]
    assert not functions, "its calls are text"
    assert "<tool_call>" in messages[0].text
    calls = [one.text for one in messages if one.role == "assistant"]
    assert '{"name": "look", "arguments": {}}' in calls[0], "calls in OpenAI's form are text for it"
    assert run.trajectory.figures("answered")["by"] == {
        "thinker": {"prompt_tokens": 20, "completion_tokens": 4, "images": 2},
        "writer": {"prompt_tokens": 10, "completion_tokens": 2, "images": 1},
    }


def test_a_region_is_read_by_the_model_that_the_tool_names() -> None:
    agent = Agent.model_validate({"tools": [READER]})
    tools = Tools(specs=(), gives=lambda name: ToolResult("ok", name, (IMAGE,)))
    replies = [[("ocr_region", '{"box": [0, 0, 500, 500]}')], "42"]
    run = Run(Model(replies, again=False), tools, agent, others={"reads": Talk(as_text=False)})
    run.go()
    assert run.model.models == ["", "reads", ""]


def test_a_region_that_a_crop_of_the_users_own_gives_as_text_is_an_error() -> None:
    tools = Tools(specs=(), gives=lambda name: ToolResult("ok", "no image"))
    run = Run(Model([[("ocr_region", '{"box": [0, 0, 500, 500]}')], "42"]), tools)
    run.agent = Agent.model_validate({"tools": ["ocr_region"]})
    end = run.go()
    assert end is not None
    assert end.exit == "answered"
    (result,) = run.lines[0]["results"]
    assert (result["kind"], result["text"]) == ("error", "the tool crop gave no image")
