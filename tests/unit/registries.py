"""Small registries on disk for tests of the registry room."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.plan import ResolvedPlan

PLAN = """\
name: small
run_tasks:
  - name: first
    ml_task: vqa
    model: org/tiny
    dataset: pages
    prompt: ask
"""

DEFINITIONS = {
    "models/org/tiny.yaml": "name: org/tiny\nsource: ../../weights\nengine: vllm\n",
    "datasets/pages.yaml": (
        "name: pages\nsource: ../pages\nannotations: a.jsonl\nfields: [question]\n"
        "group_by: [doc_type]\nsplits: [easy, hard]\n"
    ),
    "prompts/ask.yaml": 'name: ask\nuser: "{{ question }}"\n',
}


class Files:
    """A folder with a plan and one registry."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.registry = folder, folder / "registry"
        for name, text in DEFINITIONS.items():
            self.write(name, text)

    def write(self, name: str, text: str, registry: str = "registry") -> Path:
        """A definition by its path below a registry."""
        path = self.folder / registry / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def plan(self, text: str = PLAN, name: str = "p.yaml") -> Path:
        """A plan's file."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def resolved(
        self, text: str = PLAN, *settings: str, mode: str = "prod", more: Sequence[Path] = ()
    ) -> ResolvedPlan:
        """The plan, resolved."""
        return load_plan(self.plan(text), [self.registry, *more], settings, mode)  # type: ignore[arg-type]

    def refusal(self, text: str = PLAN, *settings: str, mode: str = "prod") -> list[str]:
        """Message about a wrong plan, the folder cut from file names."""
        with pytest.raises(UserError) as caught:
            self.resolved(text, *settings, mode=mode)
        for problem in caught.value.problems:
            assert problem.file is not None
            assert problem.line is not None
        return [str(problem).replace(f"{self.folder}/", "") for problem in caught.value.problems]
