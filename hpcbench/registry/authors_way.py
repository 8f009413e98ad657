"""The prompt, settings and parser with which a model's authors ask it for a kind of work."""

from __future__ import annotations

from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Generation, Model, has_option
from hpcbench.schema.run_task import RunTask


def asked_as_its_authors_do(task: RunTask, ml_task: MLTask, model: Model) -> tuple[RunTask, MLTask]:
    """The run task and the ML task with the model's own settings for this ML task, its `tasks`.

    A run task's own prompt and settings precede the model's; these precede the ML task's. An ML task's own
    parser precedes the model's: such an ML task is for one form of answers.
    """
    own = model.tasks.get(ml_task.name)
    if own is None:
        return task, ml_task
    update = {"parser": ml_task.parser or own.parser, "prompt": own.prompt or ml_task.prompt}
    return _with_settings(task, own.generation), ml_task.model_copy(update=update)


def _with_settings(task: RunTask, theirs: Generation) -> RunTask:
    """The run task with each of the authors' settings that it does not set."""
    ours = task.generation
    update = {
        name: getattr(theirs, name) for name in theirs.model_fields_set - ours.model_fields_set
    }
    if theirs.extra:
        update["extra"] = {**theirs.extra, **ours.extra}
    return task.model_copy(update={"generation": ours.model_copy(update=update)})


def with_reasoning_parser(model: Model) -> Model:
    """The model with its engine's parser of thoughts among the engine's options, unless they name one."""
    parser = model.reasoning_parsers.get(model.engine)
    if parser is None or has_option(model.engine_options, "reasoning_parser"):
        return model
    options = {**model.engine_options, "reasoning_parser": parser}
    return model.model_copy(update={"engine_options": options})
