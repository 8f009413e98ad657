"""DeepSeek-OCR's adapters: what is laid under every request, what is refused, which runner vLLM gets."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import plugins
from hpcbench.engines.deepseek_ocr import MODES, DeepSeekOcrOnSglang, DeepSeekOcrOnVllm, split
from hpcbench.engines.sglang import SglangEngine
from hpcbench.engines.vllm import VllmEngine
from hpcbench.errors import UserError

BOTH = [DeepSeekOcrOnVllm, DeepSeekOcrOnSglang]

# What matters of `model_executor/models/deepseek_ocr.py`, as in vLLM 0.31.0 to 0.33.0.
MODEL = """\
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

class NGramPerReqLogitsProcessor(AdapterLogitsProcessor):
    pass

class DeepseekOCRProcessingInfo(BaseProcessingInfo):
    def get_num_image_tokens(self, *, image_width, image_height, cropping=True):
        image_size = IMAGE_SIZE
        base_size = BASE_SIZE
        return base_size // 16
"""


def spec(**changes: Any) -> plugins.EngineSpec:
    return plugins.EngineSpec(**{"model_path": "/w", "model_name": "m", "socket": "/s", **changes})


def value(command: plugins.Command, flag: str, count: int = 1) -> list[str]:
    at = list(command.argv).index(flag)
    return list(command.argv[at + 1 : at + 1 + count])


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A vLLM that can be read but not run; its file about DeepSeek-OCR."""
    models = tmp_path / "vllm/model_executor/models"
    models.mkdir(parents=True)
    (tmp_path / "vllm/__init__.py").touch()
    file = models / "deepseek_ocr.py"
    file.write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


def test_vllm_gets_the_rule_one_image_and_no_caches() -> None:
    command = DeepSeekOcrOnVllm().launch_command(spec(gpus=1, options={"max_num_seqs": 4}))
    assert value(command, "--logits-processors") == [
        "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
    ]
    assert "--no-enable-prefix-caching" in command.argv
    assert value(command, "--mm-processor-cache-gb") == ["0"]
    assert value(command, "--limit-mm-per-prompt") == ['{"image": 1}']
    assert value(command, "--max-num-seqs") == ["4"]
    assert "--mm-processor-kwargs" not in command.argv


def test_further_rules_of_the_definition_stand_beside_it() -> None:
    options = {"logits_processors": ["mine:Rule"]}
    command = DeepSeekOcrOnVllm().launch_command(spec(options=options))
    assert value(command, "--logits-processors", 2)[1] == "mine:Rule"


def test_sglang_gets_its_own_template_and_a_history_that_is_up_to_date() -> None:
    command = DeepSeekOcrOnSglang().launch_command(spec(gpus=1))
    assert value(command, "--chat-template") == ["deepseek-ocr"]
    for flag in ("--enable-custom-logit-processor", "--disable-overlap-schedule"):
        assert flag in command.argv
    own = DeepSeekOcrOnSglang().launch_command(spec(gpus=1, chat_template="{{ x }}"))
    assert "--template={{ x }}" in own.argv
    assert "--chat-template" not in own.argv


@pytest.mark.parametrize("engine", BOTH)
def test_every_request_carries_the_rule_with_the_definitions_figures(engine: Any) -> None:
    options = {"ngram-size": 20, "window_size": 50, "whitelist_token_ids": [7]}
    for given_options, rule in [
        ({}, {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}),
        (options, {"ngram_size": 20, "window_size": 50, "whitelist_token_ids": [7]}),
    ]:
        fields = engine().request_fields(spec(options=given_options))
        assert fields["skip_special_tokens"] is False
        assert fields["vllm_xargs" if engine is DeepSeekOcrOnVllm else "custom_params"] == rule
        json.dumps(fields)
    command = engine().launch_command(spec(options=options))
    assert not [word for word in command.argv if "ngram-size" in word or "window" in word]


def test_sglangs_rule_is_named_by_a_pickle_that_needs_no_sglang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for SGLang's module: what it does with the field is `dill.loads(bytes.fromhex(…))`."""
    module = ModuleType("sglang.srt.sampling.custom_logit_processor")
    module.DeepseekOCRNoRepeatNGramLogitProcessor = type("Rule", (), {})  # type: ignore[attr-defined]
    parts = module.__name__.split(".")
    for end in range(1, len(parts)):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    field = DeepSeekOcrOnSglang().request_fields(spec())["custom_logit_processor"]
    loaded = pickle.loads(bytes.fromhex(json.loads(field)["callable"]))
    assert loaded is module.DeepseekOCRNoRepeatNGramLogitProcessor


@pytest.mark.parametrize(
    ("engine", "base"), [(DeepSeekOcrOnVllm, VllmEngine), (DeepSeekOcrOnSglang, SglangEngine)]
)
def test_a_plan_cannot_switch_the_rule_off(engine: Any, base: Any) -> None:
    gone = base.generation - engine.generation
    assert "skip_special_tokens" in gone
    assert ("vllm_xargs" if base is VllmEngine else "custom_params") in gone
    assert "top_k" in engine.generation


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "huge"}, "'mode' is 'huge'; it must be one of gundam, tiny, small, base, large"),
        ({"ngram_size": 1}, "'ngram_size' is 1; it must be a whole number, at least 2"),
        ({"ngram_size": True}, "'ngram_size'"),
        ({"window_size": 0}, "'window_size' is 0; it must be a whole number, at least 1"),
        ({"window_size": "90"}, "'window_size'"),
        ({"whitelist_token_ids": 5}, "'whitelist_token_ids' must be a list of token ids"),
        ({"whitelist_token_ids": ["<td>"]}, "'whitelist_token_ids'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    engine: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        engine().launch_command(spec(options=options))


@given(
    st.dictionaries(
        st.sampled_from(["mode", "ngram_size", "window_size", "whitelist_token_ids", "other"]),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers() | st.none()),
    )
)
def test_any_options_are_taken_or_refused_in_one_way(options: dict[str, Any]) -> None:
    try:
        ocr, rest = split(options)
    except UserError:
        return
    assert ocr.mode in MODES
    assert ocr.ngram_size >= 2 and ocr.window_size >= 1
    assert set(rest) <= {"other"}


def test_sglang_has_one_mode() -> None:
    with pytest.raises(UserError, match="'mode': SGLang cannot serve small, only gundam"):
        DeepSeekOcrOnSglang().launch_command(spec(options={"mode": "small"}))


def test_vllm_is_refused_a_mode_whose_tokens_it_counts_wrongly(vllm: Path) -> None:
    here = str(vllm.parent)  # a folder that exists: the weights are here, so it runs here
    for mode in ("tiny", "small", "base", "large"):
        with pytest.raises(
            UserError, match=f"'mode': this vLLM cannot serve {mode}.*counts their tokens"
        ):
            DeepSeekOcrOnVllm().launch_command(spec(model_path=here, options={"mode": mode}))
    DeepSeekOcrOnVllm().launch_command(spec(model_path=here, options={"mode": "gundam"}))


def test_a_vllm_that_counts_by_its_settings_gets_the_mode(vllm: Path) -> None:
    counted = MODEL.replace("IMAGE_SIZE", "self.mode.image").replace("BASE_SIZE", "self.mode.base")
    vllm.write_text(counted)
    command = DeepSeekOcrOnVllm().launch_command(
        spec(model_path=str(vllm.parent), options={"mode": "small"})
    )
    assert json.loads(value(command, "--mm-processor-kwargs")[0]) == MODES["small"]


def test_vllm_gets_its_first_runner_while_the_rule_is_written_for_it(vllm: Path) -> None:
    def runner(path: str) -> str | None:
        command = DeepSeekOcrOnVllm().launch_command(spec(model_path=path, gpus=1))
        return command.env.get("VLLM_USE_V2_MODEL_RUNNER")

    assert runner("/elsewhere") == "0"
    assert runner(str(vllm.parent)) == "0"
    vllm.write_text(MODEL.replace("(AdapterLogitsProcessor)", "(LogitsProcessor)"))
    assert runner(str(vllm.parent)) is None
    vllm.unlink()
    assert runner(str(vllm.parent)) == "0"  # it cannot be read: as in all versions known
