"""From messages and images to a model's inputs, one request at a time, and from several inputs to a batch.

The model's own processor makes them. Where that cannot be had, since processors of models that also know
videos insist on torchvision, the Qwen2-VL family is put together from its parts, which need none.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
import transformers
from PIL import Image, ImageOps

from hpcbench.engines.chat import ApiError
from hpcbench.schema.chat_content import keeping_texts

_auto: Any = transformers  # half of its functions have no types
_QWEN = ("qwen2_vl", "qwen2_5_vl")


class Encoder(Protocol):
    """Makes a model's inputs, and text of its tokens."""

    tokenizer: Any

    def encode(self, messages: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> Any: ...
    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...


def encoder_for(path: str, model: Any, options: Mapping[str, Any]) -> Encoder:
    """The model's processor, or what can stand in for it.

    Raises:
        ImportError: the processor needs a package that is not there, and nothing stands in.
    """
    try:
        return _ByProcessor(_auto.AutoProcessor.from_pretrained(path, **options))
    except ImportError:
        if model.config.model_type not in _QWEN:
            raise
    return _QwenParts(path, model, options)


class _Decoding:
    tokenizer: Any

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)


class _ByProcessor(_Decoding):
    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.tokenizer = processor.tokenizer
        # some models keep the template with the processor, some with the tokenizer
        self._templates = processor if processor.chat_template else processor.tokenizer
        if not self._templates.chat_template:
            raise ValueError("the model has no chat template")

    def _written(self, messages: Sequence[Mapping[str, Any]]) -> Any:
        return self._templates.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )

    def encode(self, messages: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> Any:
        text = self._written(keeping_texts(messages, self._written))
        begin = self.tokenizer.bos_token
        return self._processor(
            text=[text],
            images=list(images) or None,
            return_tensors="pt",
            # a template that writes the first token itself must not get a second
            add_special_tokens=not (begin and text.startswith(begin)),
        )


class _QwenParts(_Decoding):
    """Qwen2-VL's processor without its video part."""

    def __init__(self, path: str, model: Any, options: Mapping[str, Any]) -> None:
        self.tokenizer = _auto.AutoTokenizer.from_pretrained(path, **options)
        of_images = {key: value for key, value in options.items() if key != "chat_template"}
        self._images = _auto.AutoImageProcessor.from_pretrained(
            path, **{"backend": "pil", **of_images}
        )
        self._image_token_id = model.config.image_token_id
        self._image_token = self.tokenizer.convert_ids_to_tokens(self._image_token_id)

    def encode(self, messages: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> Any:
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        found = text.split(self._image_token)
        if len(found) != len(images) + 1:
            raise ValueError(f"{len(found) - 1} places for {len(images)} images in the prompt")
        pixels: dict[str, Any] = {}
        if images:
            pixels = dict(self._images(images=list(images), return_tensors="pt"))
            merged = self._images.merge_size**2
            counts = [int(grid.prod()) // merged for grid in pixels["image_grid_thw"]]
            places = (self._image_token * count for count in counts)
            text = found[0] + "".join(
                place + rest for place, rest in zip(places, found[1:], strict=True)
            )
        tokens = self.tokenizer(text, return_tensors="pt", add_special_tokens=False)
        ids = tokens["input_ids"]
        return {
            "input_ids": ids,
            "attention_mask": tokens["attention_mask"],
            "mm_token_type_ids": (ids == self._image_token_id).int(),
            **pixels,
        }


_PADDED = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""Inputs of shape [1, tokens] that may be made longer at their left, all but the first with zeros."""


def kind_of(inputs: Mapping[str, Any]) -> Hashable:
    """Requests of the same kind can be stacked: the same inputs, which fit together behind the first axis."""
    parts: list[tuple[Hashable, ...]] = []
    for name, value in sorted(inputs.items()):
        if name in _PADDED:
            parts.append((name, value.dtype))
        elif torch.is_tensor(value) and value.dim():
            parts.append((name, value.dtype, tuple(value.shape[1:])))
        else:
            parts.append((name, id(inputs)))  # nothing known: only like itself
    return tuple(parts)


def stack(inputs: Sequence[Mapping[str, Any]], pad_token: int) -> dict[str, Any]:
    """One batch of requests of one kind.

    Prompts are padded at their left, so that all end where the answers begin. Everything else is one entry
    per image or request along the first axis, in the order of the prompts, and put end to end.
    """
    if len(inputs) == 1:
        return dict(inputs[0])
    longest = max(one["input_ids"].shape[1] for one in inputs)
    batch: dict[str, Any] = {}
    for name in inputs[0]:
        values = [one[name] for one in inputs]
        if name in _PADDED:
            filling = pad_token if name == "input_ids" else 0
            values = [
                torch.nn.functional.pad(value, (longest - value.shape[1], 0), value=filling)
                for value in values
            ]
        batch[name] = torch.cat(values)
    return batch


def open_image(data: bytes) -> Any:
    """An image as vLLM sees it: turned as its EXIF data say, transparency on white, RGB.

    Raises:
        ApiError: it is none, or broken, or too large.
    """
    try:
        image: Any = Image.open(io.BytesIO(data))
        image.load()
        with contextlib.suppress(Exception):  # broken EXIF data turn nothing, as with vLLM
            image = ImageOps.exif_transpose(image)
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            layers = image.convert("RGBA")
            image = Image.new("RGB", layers.size, (255, 255, 255))
            image.paste(layers, mask=layers.getchannel("A"))
        return image.convert("RGB")
    except Image.DecompressionBombError as error:
        raise ApiError(400, f"image is too large: {error}", "invalid_image") from None
    except (OSError, SyntaxError, ValueError) as error:
        # PIL names the buffer at its address: the same mistake must read the same each time
        text = "cannot identify image" if "BytesIO" in str(error) else f"broken image: {error}"
        message = f"{text} ({len(data)} bytes)"
        raise ApiError(400, message, "invalid_image") from None
