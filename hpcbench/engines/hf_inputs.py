"""Builds a model's inputs from messages and images, one request at a time, and a batch from several inputs.

The model's own processor builds them. If it cannot be loaded, because processors of models with video support
require torchvision, the Qwen2-VL family's is assembled from its parts, which do not.
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
    """Builds a model's inputs, and decodes its tokens to text."""

    tokenizer: Any

    def encode(self, messages: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> Any: ...
    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...


def encoder_for(path: str, model: Any, options: Mapping[str, Any]) -> Encoder:
    """The model's processor, or a substitute.

    Raises:
        ImportError: the processor needs a missing package, and there is no substitute.
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
            raise ValueError(
                f"the prompt has places for {len(found) - 1} images, the request has {len(images)}"
            )
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
"""Inputs of shape [1, tokens] that may be padded on the left, all but the first with zeros."""


def kind_of(inputs: Mapping[str, Any]) -> Hashable:
    """Requests of equal kind can be stacked: same inputs, and equal shapes behind the first axis."""
    parts: list[tuple[Hashable, ...]] = []
    for name, value in sorted(inputs.items()):
        if name in _PADDED:
            parts.append((name, value.dtype))
        elif torch.is_tensor(value) and value.dim():
            parts.append((name, value.dtype, tuple(value.shape[1:])))
        else:
            parts.append((name, id(inputs)))  # unknown shape: only equal to itself
    return tuple(parts)


def stack(inputs: Sequence[Mapping[str, Any]], pad_token: int) -> dict[str, Any]:
    """One batch of requests of one kind.

    Prompts are padded on the left, so that all end where the answers start. Every other input has one entry
    per image or request along the first axis; these are concatenated in the order of the prompts.
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
    """An image as vLLM reads it: rotated by its EXIF data, transparency on white, RGB.

    Raises:
        ApiError: the data are no image, broken, or too large.
    """
    try:
        image: Any = Image.open(io.BytesIO(data))
        image.load()
        with contextlib.suppress(Exception):  # broken EXIF data do not rotate, as in vLLM
            image = ImageOps.exif_transpose(image)
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            layers = image.convert("RGBA")
            image = Image.new("RGB", layers.size, (255, 255, 255))
            image.paste(layers, mask=layers.getchannel("A"))
        return image.convert("RGB")
    except Image.DecompressionBombError as error:
        raise ApiError(400, f"image is too large: {error}", "invalid_image") from None
    except (OSError, SyntaxError, ValueError) as error:
        # PIL's message has the buffer's address: the same error must read the same each time
        text = "cannot identify image" if "BytesIO" in str(error) else f"broken image: {error}"
        message = f"{text} ({len(data)} bytes)"
        raise ApiError(400, message, "invalid_image") from None
