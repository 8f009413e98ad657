"""Options of this Python's vLLM, read from its source: importing it takes 10 to 25 s.

Its options are the flags in `EngineArgs.add_cli_args` and `make_arg_parser`, and the fields of the
`FrontendArgs` classes, which vLLM turns into flags. This holds for 0.31.0 to 0.33.0; with a differently
structured source no option is checked: vLLM refuses unknown options, too, only later.
"""

from __future__ import annotations

import ast
import importlib.util
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hpcbench.errors import Problem, unknown

_LOG = logging.getLogger(__name__)

RENAMED: Mapping[str, str] = {
    "cuda_graph_sizes": "cudagraph_capture_sizes",
    "disable_log_requests": "enable_log_requests: false, which is the default",
    "disable_mm_preprocessor_cache": "mm_processor_cache_gb: 0",
    "enable_reasoning": "reasoning_parser",
    "guided_decoding_backend": "structured_outputs_config: {backend: …}",
    "guided_decoding_disable_additional_properties": "structured_outputs_config: "
    "{disable_additional_properties: …}",
    "guided_decoding_disable_any_whitespace": "structured_outputs_config: "
    "{disable_any_whitespace: …}",
    "guided_decoding_disable_fallback": "structured_outputs_config: {disable_fallback: …}",
    "max_seq_len_to_capture": "max_cudagraph_capture_size",
    "rope_scaling": "hf_overrides: {rope_parameters: …}",
    "rope_theta": "hf_overrides: {rope_parameters: …}",
    "task": "runner",
}
"""Option in older recipes → its current name in vLLM."""

_EXPECTED = {"dtype", "max_model_len", "model", "served_model_name", "uds"}


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed vLLM."""

    version: str
    """Version of its package; `?` without one."""
    serves: bool
    """Whether `vllm serve` works: it needs a distribution named `vllm`, which some builds lack."""
    options: frozenset[str] = frozenset()
    """Names of its options with `_`; empty: they could not be read."""
    switches: frozenset[str] = frozenset()
    """Options that can only be given or omitted and have no `--no-` form."""

    def refusals(self, names: Iterable[str]) -> Iterator[Problem]:
        """Problems of options with these names; none if the options could not be read."""
        for name in names:
            option = name.partition(".")[0].rstrip("+")  # --compilation-config.mode, --…list+
            if not self.options or option in self.options:
                continue
            what = f"option of vLLM {self.version}"
            if option in RENAMED:
                yield Problem(f"unknown {what} '{name}'", remedy=f"it is now `{RENAMED[option]}`")
            else:
                yield Problem(unknown(what, name, self.options))


def installed() -> Installed | None:
    """The vLLM that this Python would import, inspected without importing; None: not installed."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:  # a plain folder of that name has no origin
        return None
    folder = Path(spec.origin).parent
    version = _version(folder)
    serves = _is_installed("vllm") and (folder / "entrypoints/cli/main.py").exists()
    if metadata.entry_points(group="vllm.platform_plugins"):
        _LOG.warning("options of vLLM are not checked: a plugin for other hardware may add some")
        return Installed(version, serves)
    try:
        options, switches = _flags(folder)
    except (OSError, SyntaxError, ValueError) as error:
        _LOG.warning("options of vLLM %s are not checked: %s", version, error)
        return Installed(version, serves)
    return Installed(version, serves, frozenset(options), frozenset(switches))


def _flags(folder: Path) -> tuple[set[str], set[str]]:
    """All options, and those without a negative form.

    Raises:
        ValueError: its structure differs from these versions'.
    """
    options: set[str] = set()
    switches: set[str] = set()
    for path in (folder / "engine/arg_utils.py", *folder.glob("entrypoints/*/cli_args.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                options.update(_fields(node))
            elif isinstance(node, ast.Call) and _method(node) == "add_argument":
                names = {_name(word) for word in node.args} - {""}
                options |= names
                if any(_text(one.value) == "store_true" for one in node.keywords):
                    switches |= names
    if lacking := _EXPECTED - options:
        raise ValueError(f"its source defines no option {', '.join(sorted(lacking))}")
    return options, switches


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id


def _name(word: ast.expr) -> str:
    """The option of a flag; empty for any other word, also for short flags."""
    text = _text(word)
    return text[2:].replace("-", "_") if text.startswith("--") else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _version(folder: Path) -> str:
    try:
        said = (folder / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return "?"
    found = re.search(r"^__version__ = .*?['\"](.+?)['\"]", said, re.MULTILINE)
    return found.group(1) if found else "?"


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
