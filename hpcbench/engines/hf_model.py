"""A vision-language model in transformers: loading it, and one answer at a time out of it."""

from __future__ import annotations

import copy
import gc
import io
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image

from hpcbench.engines.chat import ApiError, ChatRequest, Usage, unpack
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.hf_inputs import Encoder, encoder_for

_auto: Any = transformers  # half of its functions have no types


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request made ready for the model."""

    tensors: Mapping[str, Any]
    """Arguments of `generate`."""
    tokens: int
    """Length of the prompt."""
    limit: int
    """Most tokens of the answer."""


class HfModel:
    """A loaded model; its methods are for one thread."""

    def __init__(self, model: Any, encoder: Encoder, context_length: int | None) -> None:
        self._model, self._encoder, self._context = model, encoder, context_length
        self._ends = _end_tokens(model.generation_config)

    @classmethod
    def load(
        cls,
        path: str,
        *,
        dtype: str,
        gpus: int,
        context_length: int | None,
        options: Mapping[str, Any],
        threads: int,
    ) -> HfModel:
        """Load weights and processor from a folder; never from the network.

        Raises:
            OSError, ValueError, RuntimeError: whatever is wrong with the folder.
        """
        if not Path(path).is_dir():
            raise FileNotFoundError(f"there is no model folder {path}")
        torch.set_num_threads(threads)
        common = {
            "local_files_only": True,
            "trust_remote_code": bool(options.get("trust_remote_code", False)),
        }
        arguments = {**common, **options.get("model", {})}
        if "attn_implementation" in options:
            arguments["attn_implementation"] = options["attn_implementation"]
        if gpus > 1:
            arguments["device_map"] = "auto"
        model, report = _auto.AutoModelForImageTextToText.from_pretrained(
            path,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            output_loading_info=True,
            **arguments,
        )
        _check_complete(report, path)
        if gpus <= 1:
            model = model.to(_device(gpus))
        model.eval()
        encoder = encoder_for(path, model, {**common, **options.get("processor", {})})
        gc.freeze()  # nothing of this is ever garbage
        return cls(model, encoder, context_length or _longest(model.config))

    @property
    def threads(self) -> int:
        """CPU threads torch computes with."""
        return int(torch.get_num_threads())

    @property
    def peak_gpu_bytes(self) -> int:
        """Most GPU memory that tensors have taken."""
        return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0

    def prepare(self, ask: ChatRequest) -> Prompt:
        """Decode images and build the model's inputs.

        Raises:
            ApiError: a broken image, a prompt the model cannot take.
        """
        messages, raw = unpack(ask)
        images = [_decode(data) for data in raw]
        try:
            inputs = self._encoder.encode(messages, images)
        except (ValueError, TypeError) as error:
            raise ApiError(400, f"the prompt cannot be encoded: {error}", "bad_prompt") from error
        tokens = int(inputs["input_ids"].shape[1])
        limit = self._room(tokens, ask.limit)
        tensors = {name: self._place(value) for name, value in inputs.items()}
        return Prompt(tensors, tokens, limit)

    def answer(
        self,
        ask: ChatRequest,
        prompt: Prompt,
        on_text: Callable[[str], None],
        cancelled: threading.Event,
    ) -> tuple[str, Usage]:
        """Generate; `on_text` gets each new piece at once. Returns the reason it ended, and usage."""
        detokeniser = Detokeniser(self._encoder.decode, ask.stops)
        streamer = _Streamer(detokeniser, on_text)
        if ask.temperature > 0 and ask.seed is not None:
            torch.manual_seed(ask.seed)
        with torch.inference_mode():
            self._model.generate(
                **prompt.tensors,
                generation_config=self._sampling(ask, prompt.limit),
                streamer=streamer,
                stopping_criteria=_auto.StoppingCriteriaList([_Stop(detokeniser, cancelled)]),
            )
        if rest := detokeniser.end():
            on_text(rest)
        ids = detokeniser.ids
        ended = detokeniser.stopped or (bool(ids) and ids[-1] in self._ends)
        return "stop" if ended else "length", Usage(prompt.tokens, len(ids))

    def _sampling(self, ask: ChatRequest, limit: int) -> Any:
        config = copy.deepcopy(self._model.generation_config)  # keeps e.g. its repetition penalty
        config.max_new_tokens, config.max_length = limit, None
        config.do_sample = ask.temperature > 0
        if config.do_sample:
            config.temperature, config.top_p = ask.temperature, ask.top_p
        else:
            config.temperature = config.top_p = config.top_k = None
        return config

    def _room(self, tokens: int, limit: int | None) -> int:
        """Tokens the answer may have; refuses as vLLM does."""
        if self._context is None:
            return limit or 1024
        wanted = limit or 1
        if tokens + wanted > self._context:
            text = (
                f"the context length is {self._context} tokens, but the prompt has {tokens} "
                f"and max_tokens asks for {wanted}"
            )
            raise ApiError(400, text, "context_length_exceeded")
        return limit or self._context - tokens

    def _place(self, value: Any) -> Any:
        if torch.is_tensor(value):
            dtype = self._model.dtype if value.is_floating_point() else None
            return value.to(device=self._model.device, dtype=dtype)
        return value


class _Streamer:
    """Gets the prompt, then each token as it is drawn."""

    def __init__(self, detokeniser: Detokeniser, on_text: Callable[[str], None]) -> None:
        self._detokeniser, self._on_text, self._prompt_seen = detokeniser, on_text, False

    def put(self, value: Any) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        for token in value.flatten().tolist():
            if text := self._detokeniser.push(token):
                self._on_text(text)

    def end(self) -> None:
        """The rest is flushed by whoever made the detokeniser."""


class _Stop:
    """Ends generation at a stop text, or when nobody waits for it any more."""

    def __init__(self, detokeniser: Detokeniser, cancelled: threading.Event) -> None:
        self._detokeniser, self._cancelled = detokeniser, cancelled

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        over = self._detokeniser.stopped or self._cancelled.is_set()
        return torch.full((input_ids.shape[0],), over, device=input_ids.device, dtype=torch.bool)


def _decode(data: bytes) -> Any:
    try:
        image = Image.open(io.BytesIO(data))
        return image.convert("RGB")
    except Image.DecompressionBombError as error:
        raise ApiError(400, f"image is too large: {error}", "invalid_image") from None
    except (OSError, SyntaxError, ValueError) as error:
        # PIL names the buffer at its address: the same mistake must read the same each time
        text = "cannot identify image" if "BytesIO" in str(error) else f"broken image: {error}"
        message = f"{text} ({len(data)} bytes)"
        raise ApiError(400, message, "invalid_image") from None


def _device(gpus: int) -> str:
    if gpus > 0 and not torch.cuda.is_available():
        print("hpcbench: a GPU was asked for, but torch finds none: on the CPU", flush=True)  # noqa: T201
    return "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"


def _check_complete(report: Any, path: str) -> None:
    """transformers only warns when weights are missing and fills them with noise."""
    missing = sorted(map(str, report.get("missing_keys") or ()))
    wrong = sorted(map(str, report.get("mismatched_keys") or ()))
    if missing or wrong:
        first = (missing + wrong)[0]
        text = f"the weights in {path} do not fit the model: {len(missing)} tensors missing, "
        raise RuntimeError(f"{text}{len(wrong)} of another shape, e.g. {first}")


def _end_tokens(config: Any) -> frozenset[int]:
    ends = config.eos_token_id
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


def _longest(config: Any) -> int | None:
    text = config.get_text_config()
    length = getattr(text, "max_position_embeddings", None)
    return length if isinstance(length, int) else None
