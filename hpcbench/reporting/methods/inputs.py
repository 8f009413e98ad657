"""Models, data and prompts of a methods section."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from hpcbench import number_format as form
from hpcbench.reporting.blocks import Code, Item, Items, Text
from hpcbench.reporting.methods.facts import Facts, MethodsLine, Missing, is_hash, joined, place_of
from hpcbench.schema.plan import ResolvedRunTask

ENGINE_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "torch"),
    "deepseek_ocr": ("vllm", "torch"),
    "sglang": ("sglang", "torch"),
    "deepseek_ocr_sglang": ("sglang", "torch"),
    "huggingface": ("transformers", "torch"),
}
"""Engine → Python distributions whose versions are the engine's."""


# --- models --------------------------------------------------------------------------------------------


def models(facts: Facts) -> Iterator[MethodsLine]:
    """Weights, precision, engine and image of each model."""
    imported = facts.imported
    if imported is not None:
        kit = " ".join(filter(None, (str(imported["kit"]), str(imported["kit_version"] or ""))))
        names = ", ".join(dict.fromkeys(one.model.name for one in facts.run_tasks))
        yield Text(
            f"hpcbench did not run a model: it imported the answers of {names} from {kit}, which names the "
            f"model {imported['model']}."
        )
        yield Missing("Weights, revision, precision and engine of the imported answers.")
        return
    users: dict[str, list[ResolvedRunTask]] = {}
    for one in facts.run_tasks:
        users.setdefault(f"{one.served.model_dump_json()} {one.environment}", []).append(one)
    items = []
    for own in users.values():
        model = own[0].model
        several = sum(some[0].model.name == model.name for some in users.values()) > 1
        where = f" ({facts.named([one.name for one in own])})" if several else ""
        items.append(Item(f"{model.name}{where}", joined(_model(facts, own[0]))))
        yield from _unknown_of(facts, own[0])
    yield Items(tuple(items))


def _model(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    model = run_task.served
    digest = facts.experiment.measured.model_hashes.get(model.name)
    yield f"source: {place_of(model.source)}"
    yield f"revision {model.revision}" if model.revision else ""
    yield f"hash over the files {digest}" if is_hash(digest) else ""
    yield f"licence {model.licence}" if model.licence else ""
    yield "" if model.dtype == "auto" else f"precision {model.dtype}"
    yield f"context length {model.context_length} tokens" if model.context_length else ""
    yield "chat template from its definition" if model.chat_template else ""
    versions = _engine_versions(facts, run_task)
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"engine {model.engine}{f' ({text})' if text else ''}"
    if model.engine_options:
        yield f"engine options `{json.dumps(dict(model.engine_options), ensure_ascii=False)}`"
    yield from _image(facts, run_task)
    if run_task.engine_packages:
        yield f"packages beside the engine: {', '.join(run_task.engine_packages)}"


def _image(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    image, found = run_task.model.image or "", facts.experiment.environment_of(run_task)
    digest = found.get("digest")
    if image:
        name = image if "://" in image else f"the local image {image.rpartition('/')[2]}"
        yield f"image {name}{f' with digest {digest}' if digest else ''}"
    elif found.get("kind") == "venv":
        yield "no container image: a Python environment" + (
            f" with digest {digest}" if digest else ""
        )


def _engine_versions(facts: Facts, run_task: ResolvedRunTask) -> dict[str, str]:
    versions = facts.experiment.environment_of(run_task).get("versions") or {}
    names = ENGINE_PACKAGES.get(run_task.model.engine, ())
    return {name: str(versions[name]) for name in names if name in versions}


def _unknown_of(facts: Facts, run_task: ResolvedRunTask) -> Iterator[Missing]:
    model = run_task.model
    if not model.revision:
        yield Missing(f"The revision of model {model.name}: its definition names none.")
    if not is_hash(facts.experiment.measured.model_hashes.get(model.name)):
        yield Missing(f"A hash of the files of model {model.name}.")
    if model.dtype == "auto":
        yield Missing(
            f"The precision of model {model.name}: its definition leaves it to the engine (`dtype: auto`)."
        )
    if not _engine_versions(facts, run_task):
        yield Missing(f"The version of engine {model.engine} of model {model.name}.")
    if not facts.experiment.environment_of(run_task).get("digest"):
        yield Missing(f"The digest of the image or Python environment of model {model.name}.")


# --- data ----------------------------------------------------------------------------------------------


def data(facts: Facts) -> Iterator[MethodsLine]:
    """Dataset, version, split, filters and counts of each run task."""
    yield from facts.grouped({one.name: joined(_data(facts, one)) for one in facts.run_tasks})
    for one in facts.run_tasks:
        if not is_hash(facts.experiment.measured.dataset_hashes.get(one.name)):
            yield Missing(f"A hash of dataset {one.dataset.name}.")
        if not facts.experiment.dataset_samples(one.name):
            yield Missing(f"The number of all samples of dataset {one.dataset.name}.")


def _data(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    dataset, table = run_task.dataset, facts.scores[run_task.name]
    version = f" version {dataset.version}" if dataset.version else ""
    split = f", split {dataset.split}" if dataset.split else ", all splits"
    yield f"dataset {dataset.name}{version}{split}, from {_origin(facts, dataset.source)}"
    digest = facts.experiment.measured.dataset_hashes.get(run_task.name)
    yield f"hash over annotations and images {digest}" if is_hash(digest) else ""
    yield f"licence {dataset.licence}" if dataset.licence else ""
    whole = facts.experiment.dataset_samples(run_task.name)
    where = "split" if dataset.split else "dataset"
    of = f" of {whole} in the {where}" if whole else ""
    yield f"{form.many(table.asked, 'sample')}{of}: {', then '.join(_filters(facts, run_task))}"
    yield f"{form.many(table.documents, 'document')} with an answer"
    if table.skipped:
        yield f"{form.many(table.skipped, 'unusable sample')} skipped, which count against the coverage"


def _origin(facts: Facts, source: str) -> str:
    imported = facts.imported
    return place_of(source) if imported is None else f"the result files of {imported['kit']}"


def _filters(facts: Facts, run_task: ResolvedRunTask) -> Iterator[str]:
    """How samples were chosen, in the order in which the choices apply."""
    task = run_task.task
    if task.where is not None:
        yield f"samples for which `{task.where}` holds"
    if task.sample is not None:
        seed = facts.manifest.seed if task.sample.seed is None else task.sample.seed
        by = f", stratified by `{task.sample.by}`" if task.sample.by else ""
        yield f"a random sample of {task.sample.size}{by} (seed {seed})"
    if task.limit is not None:
        yield f"at most the first {task.limit} in the dataset's order"
    if task.where is None and task.sample is None and task.limit is None:
        yield "all that can be used"


# --- prompts -------------------------------------------------------------------------------------------


def prompts(facts: Facts) -> Iterator[MethodsLine]:
    """The texts that models were asked with."""
    if facts.imported is not None:
        yield Missing("The prompts of the imported answers.")
        return
    found: dict[str, list[ResolvedRunTask]] = {}
    for one in facts.run_tasks:
        key = f"{one.prompt.model_dump_json()} {one.task.output_schema}"
        found.setdefault(key, []).append(one)
    for own in found.values():
        yield from _prompt(facts, own)


def _prompt(facts: Facts, own: list[ResolvedRunTask]) -> Iterator[MethodsLine]:
    prompt, task = own[0].prompt, own[0].task
    names = [one.name for one in own]
    hashes = {facts.experiment.measured.prompt_hashes.get(name) for name in names}
    digest = next(iter(hashes)) if len(hashes) == 1 else None
    version = f" version {prompt.version}" if prompt.version else ""
    about = [
        f"prompt {prompt.name}{version} of {facts.named(names)}, strategy {prompt.strategy}",
        f"hash {digest}" if is_hash(digest) else "",
        f"{form.many(len(prompt.examples), 'example')} before the question" if prompt.examples else "",
        f"options `{json.dumps(dict(prompt.options), ensure_ascii=False)}`" if prompt.options else "",
        {
            "prompt": "the JSON Schema of the ML task follows the prompt",
            "response_format": "the JSON Schema of the ML task was sent as `response_format`",
        }.get(task.output_schema, ""),
    ]  # fmt: skip
    yield Text(joined(about))
    for role, text in (("System message", prompt.system), ("User message", prompt.user)):
        if text is not None:
            yield Text(f"{role}, before it is filled with a sample:")
            yield Code(text)
    for entry in prompt.prompts:
        when = f", for samples with `{json.dumps(dict(entry.when))}`" if entry.when else ""
        examples = f", with {form.many(len(entry.examples), 'example')}" if entry.examples else ""
        yield Text(f"Prompt {entry.id} of the collection{when}{examples}:")
        yield Code("\n\n".join(filter(None, (entry.system, entry.user))))
    if not any(map(is_hash, hashes)):
        yield Missing(f"A hash of prompt {prompt.name}.")
