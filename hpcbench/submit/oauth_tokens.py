"""A token for each model of a plan that needs one, before anything is submitted."""

from __future__ import annotations

from collections.abc import Callable

from hpcbench.schema.plan import ResolvedPlan


def require(resolved: ResolvedPlan, say: Callable[[str], None]) -> None:
    """Get the tokens.

    Raises:
        UserError: a token server refuses a credential.
    """
    models = {task.model.name: task.model for task in resolved.run_tasks}
    asking = [
        (name, model.engine, model.engine_options)
        for name, model in models.items()
        if "auth" in model.engine_options
    ]
    if asking:
        from hpcbench.oauth.token_check import check

        check(asking, say)
