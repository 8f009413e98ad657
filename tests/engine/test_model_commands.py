"""The command line of every shipped model, read by the engines' own parsers of arguments.

Needs the environments of tests/cluster/vllm_env.py (`python -m tests.cluster vllm` makes it) and
sglang_env.py. No weights are read: the parser says which options exist and which values they take.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.registry.authors_way import with_reasoning_parser
from hpcbench.registry.model_table import shipped
from hpcbench.schema.model import Model
from tests.cluster.lab import Lab
from tests.conftest import unavailable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

VLLM = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser, refused = make_arg_parser(FlexibleArgumentParser()), {}
known = {"tool_call_parser": ToolParserManager, "reasoning_parser": ReasoningParserManager}
for name, words in json.load(sys.stdin).items():
    try:
        found = parser.parse_args(words)
        validate_parsed_serve_args(found)
        for option, manager in known.items():
            if value := getattr(found, option, None):
                getattr(manager, "get_" + option.replace("call_", ""))(value)
    except (Exception, SystemExit) as error:
        refused[name] = repr(error)
print("REFUSED " + json.dumps(refused))
"""


SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs

parser, refused = argparse.ArgumentParser(exit_on_error=False), {}
ServerArgs.add_cli_args(parser)
for name, words in json.load(sys.stdin).items():
    try:
        parser.parse_args(words)
    except (Exception, SystemExit) as error:
        refused[name] = repr(error)
print("REFUSED " + json.dumps(refused))
"""


def command(model: Model) -> list[str]:
    """The words of a model's engine for an agent: with its parsers of thoughts and of tool calls."""
    served = with_reasoning_parser(model.for_agents())
    spec = plugins.EngineSpec(
        "/weights", served.name, "/socket", dtype=served.dtype, gpus=served.gpus, images=3,
        context_length=served.context_length, options=dict(served.engine_options),
    )  # fmt: skip
    argv = plugins.load("engines", served.engine)().launch_command(spec).argv
    start = argv.index("--") + 1 if "--" in argv else argv.index("--model")
    return list(argv[start:])


def refused(python: Path, program: str, lines: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Command lines that an engine's parser does not take, with its reasons."""
    done = subprocess.run(
        [str(python), "-c", program], input=json.dumps(lines), capture_output=True, text=True,
        env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": "/usr/bin:/bin"},
        timeout=500, check=False,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith("REFUSED ")]
    assert said, done.stderr[-2000:]
    found: dict[str, str] = json.loads(said[-1].removeprefix("REFUSED "))
    return found


def test_vllm_takes_the_command_line_of_every_model_that_it_serves() -> None:
    try:
        python = Lab.current().vllm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no vLLM for CPUs: {error}")
    models = [one for one in shipped() if one.engine in ("vllm", "deepseek_ocr")]
    lines = {one.name: command(one) for one in models}
    assert len(lines) > 90
    assert refused(python, VLLM, lines) == {}


def test_sglang_takes_the_command_line_of_every_model() -> None:
    """Its own models have all their options; others only the options that do not depend on vLLM."""
    try:
        python = Lab.current().sglang()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no SGLang for CPUs: {error}")
    lines = {}
    for model in shipped():
        own = model.engine == "sglang" or "sglang" in model.served_by
        shared = model.engine_options.keys() & {"trust_remote_code"}
        options = {
            name: value for name, value in model.engine_options.items() if own or name in shared
        }
        lines[model.name] = command(
            model.model_copy(update={"engine": "sglang", "engine_options": options})
        )
    assert len(lines) > 90
    for options in ("--tool-call-parser", "--reasoning-parser", "--trust-remote-code"):
        assert any(options in words for words in lines.values())
    lines["x"] = ["--model-path", "/w", "--tool-call-parser", "nobody"]
    found = refused(python, SGLANG, lines)
    assert found.keys() == {"x"}, found
