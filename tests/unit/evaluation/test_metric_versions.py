"""Two versions of a metric stand side by side, each under its own name and signature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.errors import UserError
from hpcbench.evaluation import plan_metrics
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.plan import ResolvedPlan
from tests.unit.registries import PLAN, Files

CODE = '''
from dataclasses import dataclass
from typing import ClassVar
from hpcbench.metrics.base import Parts

@dataclass(frozen=True)
class Length:
    """1 if the prediction is as long as the reference."""
    api: ClassVar[int] = 1
    name: ClassVar[str] = "length"
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple] = (0.0, 1.0)
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple] = ("text",)
    code: ClassVar[str] = "2"
    strip: bool = True
    def score(self, prediction, references):
        return Parts(float(len(prediction) == len(references[0])), 1.0)
    def aggregate(self, parts):
        return sum(one.numerator for one in parts) / len(parts)
    @property
    def signature(self):
        return f"length|v{self.code}"

class First(Length):
    code: ClassVar[str] = "1"
'''


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """A registry, and an installed metric with an older version beside the current one."""
    info = tmp_path / "length-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: length\nVersion: 1.0\n")
    points = "length = length_metric:Length\nlength_v1 = length_metric:First\n"
    (info / "entry_points.txt").write_text(f"[hpcbench.metrics]\n{points}")
    (tmp_path / "length_metric.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.forget()
    made = Files(tmp_path)
    made.write("metrics/length.yaml", "name: length\nplugin: length\noptions: {strip: false}\n")
    yield made
    plugins.forget()


def resolved(files: Files, metrics: str) -> ResolvedPlan:
    return load_plan(files.plan(f"{PLAN}    metrics: {metrics}\n"), [files.registry], mode="dev")


def test_two_versions_are_two_columns_with_two_signatures(files: Files) -> None:
    both = "[length, {name: length, version: 1}, {name: length, version: 2}]"
    found = resolved(files, both)
    (run_task,) = found.run_tasks
    assert [(one.name, one.plugin) for one in run_task.metrics] == [
        ("length", "length"),
        ("length_v1", "length_v1"),
        ("length_v2", "length"),
    ]
    assert run_task.task.metrics == ("length", "length_v1", "length_v2")
    loaded = plan_metrics.load_metrics(run_task)
    signatures = {name: one.signature for name, one in loaded.items()}
    assert signatures == {
        "length": "length|v2", "length_v1": "length|v1", "length_v2": "length|v2"
    }  # fmt: skip
    assert ResolvedPlan.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("metrics", "reported"),
    [
        (
            "[{name: length, version: 3}]",
            r"metric 'length' has version 2 here, not 3, and there is no plugin 'length_v3' "
            r"\(write `version: 2`",
        ),
        ("[{name: lenght, version: 1}]", "did you mean 'length'"),
        ("[{name: length, version: 0}]", "version"),
        ("[{name: length, version: v1}]", "version"),
        ("[{name: length, versoin: 1}]", "versoin"),
    ],
)
def test_a_wrong_version_is_named_at_its_place(files: Files, metrics: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported) as caught:
        resolved(files, metrics)
    assert all(problem.line == 8 for problem in caught.value.problems)


def test_a_definition_with_the_name_of_a_version_is_refused_beside_it(files: Files) -> None:
    files.write("metrics/length_v1.yaml", "name: length_v1\nplugin: exact_match\n")
    with pytest.raises(UserError, match="two metrics would have the column 'length_v1'"):
        resolved(files, "[length_v1, {name: length, version: 1}]")


def test_a_document_of_v02_keeps_the_version(files: Files) -> None:
    text = PLAN.replace("model: org/tiny", "model: {name: org/tiny, framework: vllm}")
    text += "    metrics: [{name: length, version: 1, backend: native}]\n"
    found = load_plan(files.plan(text), [files.registry], mode="dev")
    assert [one.name for one in found.run_tasks[0].metrics] == ["length_v1"]
