"""Initial texts of new definitions: each is valid unchanged, with the definitions that hpcbench ships."""

from __future__ import annotations

from hpcbench.portal.models.plans import DefinitionKind, Starter


def _starter(kind: DefinitionKind, name: str, title: str, text: str) -> Starter:
    return Starter(kind=kind, name=name, title=title, text=text)


STARTERS: tuple[Starter, ...] = (
    _starter("plans", "matrix", "Several models on several datasets", """\
# Every model answers every dataset. Replace the names; the completion lists all of them.
schema_version: 1
name: comparison
description: The question that this run answers.
parallelism: 4            # workers at once, of all run tasks together
limit: 100                # samples of each run task; remove it for the whole datasets
matrix:
  - ml_task: vqa
    models: [tiny-vlm]
    datasets: [demo_vqa]
    prompts: [demo_vqa]
    generation: {max_tokens: 96, temperature: 0}
    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}
"""),
    _starter("plans", "one", "One model on one dataset", """\
schema_version: 1
name: first-look
description: One model on one dataset.
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: demo_vqa
    prompt: demo_vqa
    limit: 50
    generation: {max_tokens: 96, temperature: 0}
    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}
"""),
    _starter("plans", "sweep", "Speed at rising load", """\
# The same samples at rising concurrency: where does more load give no more answers?
schema_version: 1
name: load-sweep
description: Speed at rising load.
stages: [inference, evaluation, reporting]
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: demo_vqa
    prompt: demo_vqa
    generation: {max_tokens: 96, temperature: 0}
    load: {concurrency: [1, 2, 4, 8], requests: 50}
    resources: {cpus: 1, memory_gb: 3, time_limit: "01:00:00"}
"""),
    _starter("run_tasks", "run-task", "A run task that plans can use", """\
name: NAME
ml_task: vqa
model: tiny-vlm
dataset: demo_vqa
prompt: demo_vqa
generation: {max_tokens: 96, temperature: 0}
"""),
    _starter("models", "hub", "A model of the Hugging Face Hub on vLLM", """\
schema_version: 1
name: NAME
description: What it is, in a sentence.
source: hf://ORGANISATION/MODEL
engine: vllm
image: vllm-openai
gpus: 1
context_length: 8192
"""),
    _starter("datasets", "table", "JSON Lines beside images", """\
schema_version: 1
name: NAME
description: What it is, in a sentence.
source: ../../data/NAME
annotations: samples.jsonl
fields: [question]
"""),
    _starter("prompts", "template", "A prompt with the sample's fields in it", """\
schema_version: 1
name: NAME
description: What it asks for.
system: You read documents and answer briefly.
user: "{{ question }}"
"""),
    _starter("gates", "margins", "Limits for a worse result", """\
schema_version: 1
name: NAME
description: The largest loss that a change may cause.
metrics:
  "*": {absolute: 0.01}
"""),
)  # fmt: skip
"""All of them; `NAME` becomes the new definition's name."""
