"""DeepSeek-OCR and DeepSeek-OCR-2 on vLLM and on SGLang, with the settings of their published scores.

Both models need, on every engine:

- a rule against repeated n-grams with a window and a whitelist, in every request: without it pages end in
  loops. 30 and 90 are the authors' values for images (20 and 90 for OCR-2, 20 and 50 for PDF, 40 and 90 in
  their evaluation); `<td>` and `</td>` may repeat. The values change scores: they are options of the model;
- `skip_special_tokens: false`, or the marks of places on the page are lost;
- one image, before the text, and no chat template with roles (hpcbench's client sends images first).

The engines' rules differ in one point: vLLM's checks the answer only, SGLang's prompt and answer.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.engines.sglang import SglangEngine
from hpcbench.engines.vllm import VllmEngine
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import Command, EngineSpec, Limits

MODES: Mapping[str, Mapping[str, Any]] = {
    "gundam": {"base_size": 1024, "image_size": 640, "crop_mode": True},
    "tiny": {"base_size": 512, "image_size": 512, "crop_mode": False},
    "small": {"base_size": 640, "image_size": 640, "crop_mode": False},
    "base": {"base_size": 1024, "image_size": 1024, "crop_mode": False},
    "large": {"base_size": 1280, "image_size": 1280, "crop_mode": False},
}
"""Mode → how pages are cut and scaled; `gundam` is a view of the whole page and up to six tiles of it."""

_RULE = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
_SGLANG_RULE = (
    b"csglang.srt.sampling.custom_logit_processor\nDeepseekOCRNoRepeatNGramLogitProcessor\n."
)
_ONE_PAGE_OF_VLLM: Mapping[str, Any] = {"limit_mm_per_prompt": {"image": 1}}
_ONE_PAGE_OF_SGLANG: Mapping[str, Any] = {"limit_mm_data_per_request": {"image": 1}}
_FIXED = frozenset({"custom_params", "mm_processor_kwargs", "skip_special_tokens", "vllm_xargs"})
"""Settings that the model fixes: a request's own value would win and disable the rule."""


@dataclass(frozen=True, slots=True)
class OcrOptions:
    """Options of DeepSeek-OCR in `engine_options`, beside the engine's own options."""

    mode: str = "gundam"
    """One of `MODES`."""
    ngram_size: int = 30
    """A sequence of this many tokens must not repeat … """
    window_size: int = 90
    """… within this many tokens."""
    whitelist_token_ids: tuple[int, ...] = (128821, 128822)
    """Tokens that may repeat: `<td>` and `</td>` in both models' vocabulary."""

    def rule(self) -> dict[str, Any]:
        """The rule against repetition, under the names that both engines use."""
        return {
            "ngram_size": self.ngram_size,
            "window_size": self.window_size,
            "whitelist_token_ids": list(self.whitelist_token_ids),
        }


class DeepSeekOcrOnVllm(VllmEngine):
    """Serves DeepSeek-OCR with vLLM."""

    generation: ClassVar[frozenset[str]] = VllmEngine.generation - _FIXED
    renamed: ClassVar[Mapping[str, str]] = {
        **VllmEngine.renamed,
        "vllm_xargs": "the model's engine_options: ngram_size, window_size, whitelist_token_ids",
    }

    def launch_command(self, spec: EngineSpec) -> Command:
        """vLLM's command line with the rule loaded.

        Raises:
            UserError: an option does not fit, or the installed vLLM miscounts the mode's tokens.
        """
        ocr, options = split(spec.options)
        source = _source_of_vllm() if Path(spec.model_path).is_dir() else None
        if ocr.mode != "gundam" and source is not None and counts_one_mode(source):
            raise UserError(
                Problem(
                    f"engine option 'mode': this vLLM cannot serve {ocr.mode}: it scales pages to this "
                    "mode, but counts their tokens as for gundam",
                    remedy="set `mode: gundam`, or leave the option out",
                )
            )
        ours: dict[str, Any] = {
            "enable_prefix_caching": False,
            "mm_processor_cache_gb": 0,
            **_ONE_PAGE_OF_VLLM,
        }
        if ocr.mode != "gundam":
            ours["mm_processor_kwargs"] = dict(MODES[ocr.mode])
        options = {**ours, **options}
        options["logits_processors"] = [_RULE, *(options.get("logits_processors") or ())]
        command = super().launch_command(replace(spec, options=options))
        if source is not None and not is_for_v1_runner(source):
            return command
        # With Triton, vLLM 0.31 to 0.33 use their second model runner, whose loader refuses the rule: it is
        # still written for the first runner (read, not run). On a CPU there is only the first.
        return replace(command, env={**command.env, "VLLM_USE_V2_MODEL_RUNNER": "0"})

    def limits(self, spec: EngineSpec) -> Limits:
        """vLLM's limits for one page."""
        _, options = split(spec.options)
        return super().limits(replace(spec, options={**_ONE_PAGE_OF_VLLM, **options}))

    def request_fields(self, spec: EngineSpec) -> Mapping[str, Any]:
        """The rule and the marks. Without `ngram_size` in a request vLLM's rule silently does nothing."""
        ocr, _ = split(spec.options)
        return {"skip_special_tokens": False, "vllm_xargs": ocr.rule()}


class DeepSeekOcrOnSglang(SglangEngine):
    """Serves DeepSeek-OCR with SGLang.

    SGLang takes the rule as a pickled class from the request and unpickles it: a client that may send
    requests can run code as the engine's user. So requests only come through our socket, with our key.
    """

    generation: ClassVar[frozenset[str]] = SglangEngine.generation - _FIXED

    def launch_command(self, spec: EngineSpec) -> Command:
        """SGLang's command line with rules from requests allowed.

        Raises:
            UserError: an option does not fit, or the mode: SGLang has only one.
        """
        ocr, options = split(spec.options)
        if ocr.mode != "gundam":
            raise UserError(
                Problem(
                    f"engine option 'mode': SGLang cannot serve {ocr.mode}, only gundam",
                    remedy="set `mode: gundam`, or leave the option out",
                )
            )
        ours = {
            "enable_custom_logit_processor": True,
            "disable_radix_cache": True,
            **_ONE_PAGE_OF_SGLANG,
            # Otherwise each token is chosen before its predecessor is in the history that the rule checks,
            # and repeats get through: observed with 0.5.23.
            "disable_overlap_schedule": True,
        }
        return super().launch_command(replace(spec, options={**ours, **options}))

    def limits(self, spec: EngineSpec) -> Limits:
        """SGLang's limits for one page."""
        _, options = split(spec.options)
        return super().limits(replace(spec, options={**_ONE_PAGE_OF_SGLANG, **options}))

    def settings(self, spec: EngineSpec) -> dict[str, Any]:
        """SGLang's settings with its template for the model, otherwise chosen by the weights' path."""
        template = "deepseek-ocr" if spec.chat_template is None else None
        return {**super().settings(spec), "chat_template": template}

    def request_fields(self, spec: EngineSpec) -> Mapping[str, Any]:
        """The rule and the marks.

        The class is given by name, as `CustomLogitProcessor.to_str` writes it with dill: the pickle only
        holds `GLOBAL module name`, so writing it needs no SGLang.
        """
        ocr, _ = split(spec.options)
        return {
            "skip_special_tokens": False,
            "custom_logit_processor": json.dumps({"callable": _SGLANG_RULE.hex()}),
            "custom_params": ocr.rule(),
        }


def split(options: Mapping[str, Any]) -> tuple[OcrOptions, dict[str, Any]]:
    """Our options and the engine's.

    Raises:
        UserError: one of ours has an invalid value.
    """
    given = {name.replace("-", "_"): value for name, value in options.items()}
    ours = {one.name: given.pop(one.name) for one in fields(OcrOptions) if one.name in given}
    if problems := list(_problems(ours)):
        raise UserError(*problems)
    if "whitelist_token_ids" in ours:
        ours["whitelist_token_ids"] = tuple(ours["whitelist_token_ids"])
    return OcrOptions(**ours), given


def _problems(ours: Mapping[str, Any]) -> Iterator[Problem]:
    if ours.get("mode", "gundam") not in list(MODES):  # a list: the value may be unhashable
        yield Problem(
            f"engine option 'mode' is {ours['mode']!r}; it must be one of {', '.join(MODES)}"
        )
    # with n-grams of one token vLLM's rule compares the whole answer, and so bans no token
    for name, least in (("ngram_size", 2), ("window_size", 1)):
        value = ours.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            yield Problem(
                f"engine option '{name}' is {value!r}; it must be a whole number, at least {least}"
            )
    ids = ours.get("whitelist_token_ids", ())
    if not isinstance(ids, (list, tuple)) or not all(type(one) is int for one in ids):
        yield Problem("engine option 'whitelist_token_ids' must be a list of token ids")


def _source_of_vllm() -> ast.Module | None:
    """The installed vLLM's file about DeepSeek-OCR, not imported; None if no such file is readable."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "model_executor/models/deepseek_ocr.py"
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def counts_one_mode(source: ast.Module) -> bool:
    """Whether this source counts a page's tokens from constants, regardless of the mode."""
    return any(
        isinstance(name, ast.Name) and name.id in ("BASE_SIZE", "IMAGE_SIZE")
        for function in ast.walk(source)
        if isinstance(function, ast.FunctionDef) and function.name == "get_num_image_tokens"
        for name in ast.walk(function)
    )


def is_for_v1_runner(source: ast.Module) -> bool:
    """Whether the rule is written for vLLM's first model runner."""
    return any(
        isinstance(base, ast.Name) and base.id == "AdapterLogitsProcessor"
        for rule in source.body
        if isinstance(rule, ast.ClassDef) and rule.name == _RULE.partition(":")[2]
        for base in rule.bases
    )
