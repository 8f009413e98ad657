"""The kinds of definitions: one pydantic model per kind; unknown keys are errors.

A registry contains one definition per file, in a folder named after its kind (`KINDS`). Other definitions
refer to it by its name or by the file's path. Paths inside a definition are relative to its file.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.gate import Gate
from hpcbench.schema.image import Image
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.outputs import Report
from hpcbench.schema.package import Package
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

KINDS: Mapping[str, type[Definition]] = {
    "packages": Package,
    "images": Image,
    "reports": Report,
    "ml_tasks": MLTask,
    "models": Model,
    "datasets": Dataset,
    "metrics": Metric,
    "prompts": Prompt,
    "run_tasks": RunTask,
    "experiments": ExperimentPlan,
    "gates": Gate,
    "sites": Site,
}
"""Folder of a registry → the kind of definition in it."""
