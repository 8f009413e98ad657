"""Agents whose calls real engines find: the tiny model that must look again, and every model's parser."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.agents.conversation import as_functions, conversation
from hpcbench.agents.image_tools import Crop
from hpcbench.agents.toolboxes import plugin_specs
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.request_body import _sent
from hpcbench.schema.agent import Agent
from hpcbench.schema.records import Message
from tests.cluster.lab import Lab
from tests.conftest import ROOT, unavailable
from tests.demo.reader import hpcbench
from tests.engine.test_vllm import lab_vllm
from tests.unit.agents.trajectories import PNG, Story

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

TINY, REGISTRY = ROOT / "examples/agent/model", ROOT / "examples/agent/registries"

OPTIONS: dict[str, dict[str, Any]] = {
    "vllm": {"enforce_eager": True, "max_num_seqs": 8},
    "sglang": {
        "attention_backend": "torch_native", "sampling_backend": "pytorch", "max_total_tokens": 16384,
        "mem_fraction_static": 0.5,
    },
}  # fmt: skip
"""Options of an engine on a CPU."""


def python_of(engine: str) -> Path:
    """The Python that has an engine."""
    if engine == "vllm":
        return lab_vllm()
    try:
        return Lab.current().sglang()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no SGLang for CPUs: {error}")


# Two minutes; tests/demo has the same agent with calls as text, tests/unit/agents both forms.
@pytest.mark.campaign
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_model_looks_again_by_calls_that_the_engine_parses(tmp_path: Path, engine: str) -> None:
    source = tmp_path / "weights"
    shutil.copytree(TINY, source)
    config = json.loads((source / "config.json").read_text())
    config["vision_config"]["in_chans"] = 3  # SGLang's name, as in Qwen's own checkpoints
    (source / "config.json").write_text(json.dumps(config))
    shipped = yaml.safe_load((REGISTRY / "models/tiny-agent.yaml").read_text())
    del shipped["content_hash"]
    model = {
        "engine": engine, "image": f"venv:{python_of(engine).parents[1]}", "source": str(source),
        "engine_options": OPTIONS[engine],
        "env": {"TORCHDYNAMO_DISABLE": "1"},  # else SGLang compiles with g++
    }  # fmt: skip
    own = tmp_path / "registry"
    (own / "models").mkdir(parents=True)
    (own / "models/tiny-agent.yaml").write_text(yaml.safe_dump(shipped | model))
    plan = yaml.safe_load((ROOT / "examples/agent/plan.yaml").read_text())
    plan["run_tasks"] = [{**plan["run_tasks"][0], "limit": 20}]
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))

    registries = ("--registry", str(REGISTRY), "--registry", str(own))
    hpcbench(tmp_path, "submit", str(path), *registries, "--wait")

    (table,) = json.loads(hpcbench(tmp_path, "report", "--json"))["run_tasks"].values()
    assert table["metrics"]["exact_match"]["value"] >= 0.8
    (found,) = (tmp_path / "experiments").glob("*-*")
    folder = Experiment(found).shards("with-crop")
    turns = [line for name in folder.names if "turns" in name for line in folder.records(name)]
    called = [line["reply"] for line in turns if line["reply"]["calls"]]
    assert len(called) >= 20
    for reply in called:
        assert [one["tool"] for one in reply["calls"]] == ["crop"]
        assert "<tool_call>" not in reply["text"], "the engine took the call out of the text"


JSON = '{"name": "crop", "arguments": {"image": 1, "box": [0, 0, 500, 500]}}'
CALLS = {
    "hermes": f"I look.\n<tool_call>\n{JSON}\n</tool_call>",
    "qwen": f"I look.\n<tool_call>\n{JSON}\n</tool_call>",
    "qwen3_coder": "I look.\n<tool_call>\n<function=crop>\n<parameter=image>\n1\n</parameter>\n"
    "<parameter=box>\n[0, 0, 500, 500]\n</parameter>\n</function>\n</tool_call>",
    "gemma4": "I look.<|tool_call>call:crop{image:1,box:[0,0,500,500]}<tool_call|>",
    "mistral": '[TOOL_CALLS]crop[ARGS]{"image": 1, "box": [0, 0, 500, 500]}',
    "glm45": "I look.\n<tool_call>crop\n<arg_key>image</arg_key>\n<arg_value>1</arg_value>\n"
    "<arg_key>box</arg_key>\n<arg_value>[0, 0, 500, 500]</arg_value>\n</tool_call>",
}
"""Parser → a reply with a call, as models of that parser write it."""

MARKS = [
    "<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", "[TOOL_CALLS]", "[ARGS]", "<think>",
    "</think>", "<|channel>", "<channel|>", "<|turn>", "<|tool_response>",
]  # fmt: skip
"""Tokens that vLLM's parsers look up in a model's vocabulary."""

PARSE = {
    "vllm": """\
import json, sys
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
given = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(given["tokenizer"])
tokenizer.add_special_tokens({"additional_special_tokens": given["marks"]})
request = ChatCompletionRequest(messages=[{"role": "user", "content": "x"}], tools=given["tools"])
found = {}
for name, text in given["calls"].items():
    parser = ToolParserManager.get_tool_parser(name)(tokenizer, request.tools)
    got = parser.extract_tool_calls(text, request)
    calls = [[one.function.name, one.function.arguments] for one in got.tool_calls]
    found[name] = [[got.content or "", calls]]
print(json.dumps({
    "tool_parsers": ToolParserManager.list_registered(),
    "reasoning_parsers": ReasoningParserManager.list_registered(), "found": found,
}))
""",
    "sglang": """\
import json, sys
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
given = json.load(sys.stdin)
tools = [Tool.model_validate(one) for one in given["tools"]]
found = {}
for name, text in given["calls"].items():
    left, whole = FunctionCallParser(tools, name).parse_non_stream(text)
    found[name] = [[left, [[one.name, one.parameters] for one in whole]]]
    parser, said, pieces = FunctionCallParser(tools, name), "", {}
    for start in range(0, len(text), 7):
        more, calls = parser.parse_stream_chunk(text[start : start + 7])
        said += more
        for one in calls:
            kept = pieces.setdefault(one.tool_index, ["", ""])
            kept[0] += one.name or ""
            kept[1] += one.parameters
    found[name].append([said, list(pieces.values())])
print(json.dumps({
    "tool_parsers": list(FunctionCallParser.ToolCallParserEnum),
    "reasoning_parsers": list(ReasoningParser.DetectorMap), "found": found,
}))
""",
}
"""Engine → a program that prints its parsers' names, and what they find in texts: whole, and in pieces."""


def named(engine: str, kind: str) -> dict[str, str]:
    """Parser → a model definition that names it for an engine."""
    paths = [
        *(ROOT / "registries/models").rglob("*.yaml"),
        *ROOT.glob("examples/*/registries/models/*"),
    ]
    models = [yaml.safe_load(path.read_text()) for path in paths]
    return {one[kind][engine]: one["name"] for one in models if engine in one.get(kind, ())}


@pytest.mark.parametrize("engine", sorted(PARSE))
def test_engines_have_the_parsers_that_definitions_name_and_these_find_calls(engine: str) -> None:
    crop = plugin_specs(Agent(tools=("crop",)))
    wanted = named(engine, "tool_parsers")
    given = {
        "tools": as_functions(crop), "calls": {name: CALLS[name] for name in wanted},
        "tokenizer": str(TINY), "marks": MARKS,
    }  # fmt: skip
    done = subprocess.run(
        [python_of(engine), "-W", "ignore", "-c", PARSE[engine]],
        input=json.dumps(given), capture_output=True, text=True, check=False,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    has = json.loads(done.stdout.splitlines()[-1])
    for kind in ("tool_parsers", "reasoning_parsers"):
        lacking = {
            name: model for name, model in named(engine, kind).items() if name not in has[kind]
        }
        assert not lacking, f"{engine} has no such {kind}"
    for name, forms in has["found"].items():
        for left, calls in forms:
            ((tool, arguments),) = calls
            assert tool == "crop", name
            assert Crop.Arguments.model_validate_json(arguments).box == [0, 0, 500, 500], name
            assert left.strip() in ("I look.", ""), name


MISTRAL = """\
import json, sys
from mistral_common.protocol.instruct import validator
from mistral_common.protocol.instruct.request import ChatCompletionRequest
request = ChatCompletionRequest.from_openai(json.load(sys.stdin), model="m")
for name in ("V5", "V13"):
    kind = getattr(validator, f"MistralRequestValidator{name}")
    kind(validator.ValidationMode.serving).validate_request(request)
"""
"""A program that checks messages by the rules of Mistral's tokenizers, which are the strictest ones."""


def test_mistrals_rules_take_the_conversation_of_an_agent() -> None:
    """With text beside calls, repeated ids, arguments that are no JSON, and images of tools."""
    story = Story("s").does(
        ("crop", {"box": [1]}, "ok", 1), ("c r o p", "{", "unknown", 0), text="I look."
    )
    story.turns = [
        replace(turn, calls=tuple(replace(one, id="same") for one in turn.calls))
        for turn in story.turns
    ]
    prompt = (Message("system", "Be short."), Message("user", "How much?", (PNG,)))
    said = conversation(prompt, story.trajectory, lambda _: Path("made.png"), 1, as_text=False)
    messages = [_sent(one, itertools.repeat("data:image/png;base64,AA==")) for one in said]
    for call in (one for message in messages for one in message.get("tool_calls", ())):
        call["id"] = f"{call['id']:z<9}"  # the engine's own have nine letters
    for result in (one for one in messages if "tool_call_id" in one):
        result["tool_call_id"] = f"{result['tool_call_id']:z<9}"
    done = subprocess.run(
        [python_of("vllm"), "-W", "ignore", "-c", MISTRAL],
        input=json.dumps(messages), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
