"""Whether hpcbench's own Python has the engines of models without an image."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint
from hpcbench.plugins import Environment
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit.fingerprint import metadata_folders


def check_engines(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """See that hpcbench's own Python has the engine of every model that runs there.

    Raises:
        EnvironmentFault: it lacks an extra; names the command that adds it.
    """
    for model, environment in {
        one.model.name: (one.model, prepared[one.environment]) for one in resolved.run_tasks
    }.values():
        if environment.kind != "venv" or environment.path != sys.executable:
            continue
        if plugins.find("engines", model.engine) is None:
            continue  # a package brings it to the environment of the engine alone
        engine = plugins.load("engines", model.engine)
        there = {**environment.versions, **_added(environment)}
        lacking = [name for name in getattr(engine, "needs", ()) if name not in there]
        if lacking:
            add = f", or {install_hint(engine.extra)}" if hasattr(engine, "extra") else ""
            raise EnvironmentFault(
                f"model '{model.name}' has no image, and this Python lacks {', '.join(lacking)}",
                remedy=f"name an image in the model's document{add}",
            )


def _added(environment: Environment) -> dict[str, str]:
    """What a plan's packages bring beside it."""
    found = metadata_folders(environment.packages) if environment.packages else ()
    return {name: version for name, version, _ in found}
