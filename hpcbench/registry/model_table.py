"""The page of shipped models in the documentation, made from their definitions.

python -m hpcbench.registry.model_table > docs/models.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from hpcbench.registry.catalog import Catalog
from hpcbench.schema.model import Model

CARDS = (16, 24, 32, 40, 48, 80, 141, 192)
"""Memory of GPUs as they are sold, GB."""

_ROOM = 8.0
"""GB for the KV cache of some requests, activations and the engine itself."""

_MORE = 1.1
"""Weights in memory, by the size of their files."""

HEAD = """\
# Models

`hpcbench registry show models/NAME` prints a definition whole. Any other model of the Hugging Face Hub runs too: write `model: {name: ORGANISATION/NAME, engine: vllm}` in a run task, or [a definition of your own](registries.md).

## How to read the table

- **Not read**: facts that were not read at their source. Check them before you rely on them. `sources` in the definition says where each other fact was read: at the publisher, or in a copy of the publisher's file, which it names then.
- **Parameters** are those of all weights, as far as the hub's count was read. Many names count the language part alone: MiMo-VL-7B has 8 billion.
- **Made for**: ML tasks for which the definition has its authors' own prompt, settings and parser (`tasks`). A run task of such an ML task uses them where it sets nothing itself. So one plan can compare models that each answer in their own form: `ml_task: ocr` reads all of them into Markdown.
- **GPU memory** is a rule, not a measurement: 1.1 × parameters × bytes of a parameter (2 in bf16, 1 in fp8) ÷ GPUs, and 8 GB for the KV cache, activations and the engine. The card is the smallest that is sold with so much memory: CARDS GB. At fp8, an engine stores the weights in 8 bits (`quantization: fp8` in `engine_options`); GPUs before Ada and Hopper compute in 16 bits nevertheless.
- **Revision**: no definition names a commit of the hub, since none could be looked up where they were written. `RUN_MODE=prod` refuses a model without one; `hpcbench models verify NAME` reads the weights and adds the hash. The manifest of each experiment has the hash of what it used.
- The **number of images** of a request follows the dataset; no definition limits it.

"""  # noqa: E501


def gpu_memory(parameters_b: float, bytes_each: float, gpus: int) -> int:
    """Memory that a model needs on each of its GPUs, GB (10^9 bytes), by the rule of the documentation.

    Args:
        parameters_b: parameters, 10^9.
        bytes_each: bytes of a parameter: 2 in bf16, 1 in fp8.
        gpus: GPUs that share the weights.
    """
    return round(_MORE * parameters_b * bytes_each / gpus + _ROOM)


def smallest_card(memory_gb: float) -> int | None:
    """The smallest GPU that is sold with so much memory, GB; None: there is none."""
    return next((card for card in CARDS if card >= memory_gb), None)


def page(models: Sequence[Model]) -> str:
    """The page, in Markdown."""
    lines = [HEAD.replace("CARDS", ", ".join(map(str, CARDS)))]
    made = [one for one in models if one.tasks]
    lines += ["## Models for documents", "", *_table(made)]
    lines += ["", "## Models for any question", "", *_table([m for m in models if not m.tasks])]
    return "\n".join(lines) + "\n"


def _table(models: Sequence[Model]) -> Iterator[str]:
    yield (
        "| model | 10^9 parameters | licence | context | served by | made for | answers "
        "| GPU memory, bf16 | fp8 | not read |"
    )
    yield "|---|--:|---|--:|---|---|---|---|---|---|"
    for one in models:
        cells = (
            f"`{one.name}`",
            f"{one.parameters_b:g}" if one.parameters_b else "",
            one.licence or "?",
            f"{one.context_length}" if one.context_length else "",
            ", ".join(one.served_by.values()),
            ", ".join(one.tasks),
            "; ".join(dict.fromkeys(task.output for task in one.tasks.values())),
            _memory(one, 2),
            _memory(one, 1),
            ", ".join(one.unread),
        )
        yield f"| {' | '.join(cells)} |"


def _memory(model: Model, bytes_each: float) -> str:
    if model.parameters_b is None:
        return ""
    need = gpu_memory(model.parameters_b, bytes_each, model.gpus)
    card = smallest_card(need)
    number = f"{model.gpus} × " if model.gpus > 1 else ""
    return f"{number}{need} GB" + (f" ({number}{card} GB card)" if card is not None else "")


def shipped() -> list[Model]:
    """The models that hpcbench ships for engines with weights, by name."""
    catalog = Catalog()
    found = (catalog.get(Model, name) for name in catalog.names("models"))
    return sorted((one for one in found if one.gpus), key=lambda one: one.name.lower())


if __name__ == "__main__":
    sys.stdout.write(page(shipped()))
