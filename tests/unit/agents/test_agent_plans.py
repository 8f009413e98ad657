"""Plans with agents: what they resolve to, and mistakes at their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.agents.own_tools import needing
from hpcbench.errors import UserError
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.agent import DEFAULT_TOOLS, Agent

PLAN = """\
name: looks
executor: local
run_tasks:
  - {{name: a, ml_task: {ml_task}, model: tiny-vlm, dataset: demo_vqa, prompt: demo_vqa{more}}}
"""


def plan(tmp_path: Path, more: str = "", ml_task: str = "vqa") -> Path:
    path = tmp_path / "looks.yaml"
    path.write_text(PLAN.format(more=f", {more}" if more else "", ml_task=ml_task))
    return path


def mistakes(path: Path) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_plan(path)
    return [str(one).partition("looks.yaml:")[2] for one in caught.value.problems]


def test_a_run_task_is_an_agent_if_it_or_its_ml_task_says_so(tmp_path: Path) -> None:
    (plain,) = load_plan(plan(tmp_path)).run_tasks
    assert plain.agent is None
    (own,) = load_plan(plan(tmp_path, "agent: {tools: [crop], limits: {calls: 3}}")).run_tasks
    assert own.agent is not None
    assert (own.agent.tools, own.agent.limits.calls, own.calls_as_text) == (("crop",), 3, True)
    (usual,) = load_plan(plan(tmp_path, ml_task="agent")).run_tasks
    assert usual.agent is not None
    assert usual.agent.tools == DEFAULT_TOOLS
    (without,) = load_plan(plan(tmp_path, "agent: false", ml_task="agent")).run_tasks
    assert without.agent is None


def test_each_call_of_an_agent_may_add_an_image_to_its_requests(tmp_path: Path) -> None:
    (plain,) = load_plan(plan(tmp_path)).run_tasks
    (agent,) = load_plan(plan(tmp_path, "agent: {limits: {calls: 30}}")).run_tasks
    assert [plain.most_images(2), plain.most_images(0)] == [2, 0]
    assert [agent.most_images(2), agent.most_images(0)] == [32, 0], "0: unknown"


def test_an_agents_engine_gets_the_models_parser_of_calls_and_no_limit_of_images(
    tmp_path: Path,
) -> None:
    written = PLAN.format(ml_task="agent", more="")

    def served(model: str) -> tuple[dict[str, object], bool]:
        path = tmp_path / "looks.yaml"
        path.write_text(written.replace("tiny-vlm", model))
        (one,) = load_plan(path, locks=False).run_tasks
        return dict(one.served.engine_options), one.calls_as_text

    qwen3 = "name: Qwen/Qwen3-VL-2B-Instruct"
    assert served(f"{{{qwen3}}}") == ({"tool_call_parser": "hermes"}, False)
    assert served(f"{{{qwen3}, engine: sglang}}") == ({"tool_call_parser": "qwen"}, False)
    own = f"{{{qwen3}, engine_options: {{tool-call-parser: mine}}}}"
    assert served(own) == ({"tool-call-parser": "mine"}, False)
    assert served("Qwen/Qwen2.5-VL-3B-Instruct") == ({}, True), "its chat template knows no tools"
    (plain,) = load_plan(plan(tmp_path).rename(tmp_path / "plain.yaml")).run_tasks
    assert plain.served == plain.model


def test_settings_of_single_requests_are_refused_beside_an_agent(tmp_path: Path) -> None:
    more = "agent: true, rate: 2, slo: {ttft_ms: 9}, concurrency: 4"
    assert mistakes(plan(tmp_path, more)) == [
        "4:96: an agent sends several requests for a sample, so 'rate' has no meaning (remove it)",
        "4:105: an agent sends several requests for a sample, so 'slo' has no meaning (remove it)",
    ]


def test_a_tool_that_is_not_there_is_named_with_those_that_are_like_it(tmp_path: Path) -> None:
    (one,) = mistakes(plan(tmp_path, "agent: {tools: [crp, ocr_region, create_plan]}"))
    assert one == "4:99: unknown tool plugin 'crp' (did you mean 'crop'?)"


def test_agents_hand_over_to_agents_that_exist(tmp_path: Path) -> None:
    (one,) = mistakes(plan(tmp_path, "agent: {agents: {a: {prompt: x, hand_over: [b]}}}"))
    assert "agent 'a' hands over to 'b'; the others are: none" in one


def test_a_tool_that_reads_a_region_brings_crop_for_an_agent_among_several_too() -> None:
    roles = {"tools": [], "agents": {"a": {"prompt": "x", "tools": ["ocr_region"]}}}
    assert needing(Agent.model_validate(roles)).tools == ("crop",)
    assert needing(Agent.model_validate({"tools": ["ocr_region"]})).tools == ("ocr_region", "crop")
