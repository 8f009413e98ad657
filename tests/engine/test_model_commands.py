"""The command line of every shipped model, read by the engines' own parsers of arguments.

Needs the environment of tests/cluster/vllm_env.py (`python -m tests.cluster vllm` makes it). No weights are
read: the parser says which options exist and which values they take.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from hpcbench import plugins
from hpcbench.registry.authors_way import with_reasoning_parser
from hpcbench.registry.model_table import shipped
from hpcbench.schema.definitions import Model
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


def command(model: Model) -> list[str]:
    """The words of a model's engine for an agent: with its parsers of thoughts and of tool calls."""
    served = with_reasoning_parser(model.for_agents())
    spec = plugins.EngineSpec(
        "/weights", served.name, "/socket", dtype=served.dtype, gpus=served.gpus, images=3,
        context_length=served.context_length, options=dict(served.engine_options),
    )  # fmt: skip
    argv = plugins.load("engines", served.engine)().launch_command(spec).argv
    return list(argv[argv.index("--model") :])


def test_vllm_takes_the_command_line_of_every_model_that_it_serves() -> None:
    try:
        python = Lab.current().vllm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no vLLM for CPUs: {error}")
    models = [one for one in shipped() if one.engine in ("vllm", "deepseek_ocr")]
    lines = {one.name: command(one) for one in models}
    assert len(lines) > 90
    done = subprocess.run(
        [str(python), "-c", VLLM], input=json.dumps(lines), capture_output=True, text=True,
        env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": "/usr/bin:/bin"},
        timeout=500, check=False,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith("REFUSED ")]
    assert said, done.stderr[-2000:]
    assert json.loads(said[-1].removeprefix("REFUSED ")) == {}
