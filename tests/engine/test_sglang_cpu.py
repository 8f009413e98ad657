"""The tiny model in a real SGLang on a CPU, started by the very command the engine gives.

Needs the environment of tests/cluster/sglang_env.py: SGLang's own source beside vLLM's for CPUs. Attention
is PyTorch's instead of a kernel for GPUs; all before and after it is what a GPU would get.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.conftest import unavailable
from tests.engine import contract
from tests.engine.contract import MODEL, PAGE, READ, ask

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

NOT_ITS_OWN = {
    "reads_files_below_its_root_only",  # it opens any file: the wrapper looks at each (checks_media)
    "does_not_know_another_model",  # it answers to any name
}


SGLANG = "hpcbench.engines.sglang:SglangEngine"


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """The Python that has SGLang."""
    try:
        found = Lab.current().sglang()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        unavailable(f"no SGLang for CPUs: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "TORCHDYNAMO_DISABLE", "1"
        )  # else PyTorch compiles with g++ and Python's headers
        yield found


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Report of the load of the tiny model."""
    model = tmp_path_factory.mktemp("weights") / "tiny"
    shutil.copytree(MODEL, model)
    config = json.loads((model / "config.json").read_text())
    config["vision_config"]["in_chans"] = 3  # as Qwen's own checkpoints call in_channels
    (model / "config.json").write_text(json.dumps(config))
    options = {
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "max_total_tokens": 16384,
        "mem_fraction_static": 0.5,
        # a tiny model would fill its answer with white space
        "constrained_json_disable_any_whitespace": True,
    }
    return {"model_path": str(model), "context_length": 1024, "images": 2, "options": options}


@pytest.fixture(scope="module")
def engine(python: Path, reported: dict[str, Any]) -> Iterator[contract.Engine]:
    """SGLang with the tiny model, once for the module."""
    with contract.started(SGLANG, python, **reported) as engine:
        yield engine


@pytest.mark.campaign  # test_vllm has the same of vLLM
@pytest.mark.parametrize("end", ["unload", "kill"])
def test_nothing_of_it_stays_on_the_node(end: str, python: Path, reported: dict[str, Any]) -> None:
    contract.leaves_nothing(end, python, SGLANG, **reported)


@pytest.mark.parametrize("check", sorted(contract.CHECKS.keys() - NOT_ITS_OWN))
def test_it(engine: contract.Engine, check: str) -> None:
    contract.run(engine, check)


def test_it_listens_on_the_socket_and_its_port_is_nobodys(engine: contract.Engine) -> None:
    assert (engine.folder / "s").stat().st_mode & 0o777 == 0o600
    # the ports it does open are those by which its own processes find each other
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {int(line[1].partition(":")[2], 16) for line in lines if line[3] == "0A"}
    reported = re.search(r"'port': (\d+)", engine.log)
    assert reported is not None and int(reported.group(1)) not in listening


def test_its_warm_up_and_its_metrics_come_over_the_socket(engine: contract.Engine) -> None:
    status, text = asyncio.run(engine.get("/metrics"))
    assert status == 200
    assert "sglang:prompt_tokens_total" in text
    assert "fired up" in engine.log
    assert "freeze_gc failed" not in engine.log


def test_more_images_than_the_dataset_has_are_refused(engine: contract.Engine) -> None:
    three = {"messages": ask(READ, PAGE, PAGE, PAGE)}
    [message] = asyncio.run(contract.refused(engine, 400, three))
    assert "limit 2" in message


PARSER = """\
import argparse, json, sglang
from pathlib import Path
from sglang.srt.server_args import ServerArgs
from hpcbench.engines.sglang import read_options
parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
words = {word for action in parser._actions for word in action.option_strings}
negatable = {
    action.option_strings[0] for action in parser._actions
    if isinstance(action, argparse.BooleanOptionalAction)
}
names = lambda flags: {flag[2:].replace("-", "_") for flag in flags if flag.startswith("--")}
positive = {word for word in words if "--" + word[5:] not in negatable or word[:5] != "--no-"}
found = read_options(Path(sglang.__file__).parent)
print(json.dumps([len(positive), found == (names(positive), names(negatable))]))
"""


@pytest.mark.campaign  # its parser takes 25 s of CPU; the lab's SGLang does not change between runs
def test_options_read_from_its_source_are_those_of_its_parser(engine: contract.Engine) -> None:
    lab = Lab.current()
    done = subprocess.run(
        [str(lab.sglang()), "-W", "ignore", "-c", PARSER],
        env={**os.environ, "PYTHONPATH": str(contract.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    number, equal = json.loads(done.stdout.splitlines()[-1])
    assert number > 500
    assert equal
