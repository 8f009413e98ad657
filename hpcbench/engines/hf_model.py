"""A vision-language model in transformers: loading it, preparing requests, and generating batches of them."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from hpcbench.engines.chat import ApiError, ChatRequest, unpack
from hpcbench.engines.detokenise import Detokeniser
from hpcbench.engines.hf_batch import Batch, HandOver, Job, Row
from hpcbench.engines.hf_grammar import Grammars
from hpcbench.engines.hf_inputs import Encoder, encoder_for, kind_of, open_image, stack
from hpcbench.engines.hf_sampling import DEFAULTS, Chooser, Settings

_auto: Any = transformers  # half of its functions have no types
# Only losses, and models that write no text, need scipy, and only assisted generation scikit-learn. Their
# imports would take a tenth of the time until a small model is loaded.
_auto.utils.is_scipy_available = _auto.utils.is_sklearn_available = lambda: False
# On this first use transformers loads a third of its modules: with the others, for `huggingface.serve`.
_Model: Any = _auto.AutoModelForImageTextToText


class HfModel:
    """A loaded model. `prepare` is for one thread, `generate` for another."""

    def __init__(
        self,
        model: Any,
        encoder: Encoder,
        context_length: int | None,
        media_root: Path | None = None,
    ) -> None:
        self._model, self._encoder = model, encoder
        self._context, self._media_root = context_length, media_root
        config = model.generation_config
        self._defaults = {
            name: value for name in DEFAULTS if (value := getattr(config, name, None)) is not None
        }
        self._ends = _end_tokens(config, encoder.tokenizer)
        self._pad = _pad_token(config, encoder.tokenizer)
        _leave_sampling_to_us(config, self._pad)
        vocabulary = getattr(model.config.get_text_config(), "vocab_size", 0)
        self._grammars = Grammars(encoder.tokenizer, vocabulary, self._ends)

    @classmethod
    def load(
        cls,
        path: str,
        *,
        dtype: str,
        gpus: int,
        context_length: int | None,
        media_root: str | None,
        options: Mapping[str, Any],
        threads: int,
    ) -> HfModel:
        """Load weights and processor from a folder; never from the network.

        OSError, ValueError, RuntimeError: the folder is unusable.
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
        model, report = _Model.from_pretrained(
            path,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            output_loading_info=True,
            **arguments,
        )
        _check_complete(report, path)
        if share := options.get("gpu_memory_share"):
            for device in range(torch.cuda.device_count()):
                torch.cuda.set_per_process_memory_fraction(share, device)
        if gpus <= 1:
            model = model.to(_device(gpus))
        model.eval()
        encoder = encoder_for(path, model, {**common, **options.get("processor", {})})
        gc.freeze()  # none of these objects is ever garbage
        root = None if media_root is None else Path(media_root)
        return cls(model, encoder, context_length or _longest(model.config), root)

    def prepare(self, job: Job) -> Row:
        """Decode images and build the model's inputs.

        Raises:
            ApiError: a broken image, or a prompt that the model cannot take.
        """
        ask = job.ask
        messages, raw = unpack(ask, self._media_root)
        images = [open_image(data) for data in raw]
        try:
            inputs = self._encoder.encode(messages, images)
        except (ValueError, TypeError) as error:
            raise ApiError(400, f"the prompt cannot be encoded: {error}", "bad_prompt") from error
        tensors = {name: value for name, value in inputs.items() if value is not None}
        prompt = tensors["input_ids"][0]
        job.prompt_tokens = len(prompt)
        ends = frozenset() if ask.ignore_eos else self._ends
        ends |= frozenset(ask.stop_token_ids or ())
        schema = ask.schema_wanted
        grammar = None if schema is None else self._grammars.follow(schema)
        settings = Settings.of(ask, self._defaults)
        skip = ask.skip_special_tokens is not False
        return Row(
            job=job,
            tensors=tensors,
            kind=kind_of(tensors),
            tokens=len(prompt),
            limit=self._room(len(prompt), ask),
            ends=ends,
            chooser=Chooser(settings, prompt, ends, grammar),
            detokeniser=Detokeniser(
                lambda ids: self._encoder.decode(ids, skip), ask.stops, settings.min_tokens
            ),
        )

    def generate(self, rows: Sequence[Row], hand_over: HandOver) -> None:
        """Answer all rows in one call; `hand_over` gets each token's events at once.

        Rows that already have tokens, from a call that failed, continue after them.
        """
        batch = Batch(rows, hand_over)
        tensors = stack([row.tensors for row in rows], self._pad)
        with torch.inference_mode():
            self._model.generate(
                **{name: self._place(value) for name, value in tensors.items()},
                max_new_tokens=max(row.limit for row in rows),
                logits_processor=[batch],
                stopping_criteria=[batch.take],
            )

    def recover(self) -> None:
        """Free the memory that a failed call left.

        Raises:
            RuntimeError: the GPU does not respond any more; only a new process helps.
        """
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def figures(self) -> dict[str, int]:
        """Threads, and bytes of memory: of the weights; peak of the tensors and of their pool on the GPUs."""
        kept = [*self._model.parameters(), *self._model.buffers()]
        devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        return {
            "torch_threads": int(torch.get_num_threads()),
            "weights_bytes": sum(one.numel() * one.element_size() for one in kept),
            "gpu_allocated_peak_bytes": sum(map(torch.cuda.max_memory_allocated, devices)),
            "gpu_reserved_peak_bytes": sum(map(torch.cuda.max_memory_reserved, devices)),
        }

    def _room(self, tokens: int, ask: ChatRequest) -> int:
        """Most tokens of the answer; refuses requests as vLLM does."""
        if self._context is None:
            return ask.limit or 1024
        wanted = ask.limit or 1
        if tokens + wanted > self._context:
            text = (
                f"the context length is {self._context} tokens, but the prompt has {tokens} "
                f"and max_tokens asks for {wanted}"
            )
            raise ApiError(400, text, "context_length_exceeded")
        return ask.limit or self._context - tokens

    def _place(self, value: Any) -> Any:
        if torch.is_tensor(value):
            dtype = self._model.dtype if value.is_floating_point() else None
            return value.to(device=self._model.device, dtype=dtype)
        return value


def out_of_memory(error: BaseException) -> bool:
    """Whether the error is a lack of memory, on a GPU or a CPU."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _leave_sampling_to_us(config: Any, pad_token: int) -> None:
    """`generate` takes the most likely token and never ends by itself: rows control both."""
    config.do_sample = False
    config.temperature = config.top_p = config.top_k = config.min_p = None
    config.repetition_penalty = None
    config.max_length = config.max_new_tokens = None
    config.eos_token_id = None
    config.pad_token_id = pad_token


def _end_tokens(config: Any, tokenizer: Any) -> frozenset[int]:
    """End tokens of the model and of its tokenizer, as in vLLM."""
    ends = config.eos_token_id
    of_model = [] if ends is None else [ends] if isinstance(ends, int) else ends
    return frozenset(one for one in (*of_model, tokenizer.eos_token_id) if one is not None)


def _pad_token(config: Any, tokenizer: Any) -> int:
    """A token for padding; any works, since padding is masked."""
    found = (one for one in (config.pad_token_id, tokenizer.pad_token_id) if one is not None)
    return int(next(found, 0))


def _device(gpus: int) -> str:
    if gpus > 0 and not torch.cuda.is_available():
        print("hpcbench: torch finds no GPU: the model runs on the CPU", flush=True)  # noqa: T201
    return "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"


def _check_complete(report: Any, path: str) -> None:
    """Refuse incomplete weights: transformers only warns and fills missing weights with noise."""
    missing = sorted(map(str, report.get("missing_keys") or ()))
    wrong = sorted(map(str, report.get("mismatched_keys") or ()))
    if missing or wrong:
        first = (missing + wrong)[0]
        text = f"the weights in {path} do not fit the model: {len(missing)} tensors missing, "
        raise RuntimeError(f"{text}{len(wrong)} of another shape, e.g. {first}")


def _longest(config: Any) -> int | None:
    text = config.get_text_config()
    length = getattr(text, "max_position_embeddings", None)
    return length if isinstance(length, int) else None
