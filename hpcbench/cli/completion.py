"""Names for a shell's completion: they come from folders, without reading a definition.

Every key press starts a process on a login node. So this module imports no pydantic, and parses at most a
site profile and one small file of an experiment. A failure completes nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcbench.cli.parse import parser
from hpcbench.registry.registry_dirs import share_dir, site_dir, user_dir

Complete = Callable[[argparse.Namespace], Iterator[str]]


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench completion SHELL`."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["hpcbench"], shell=arguments.shell))
    return 0


def complete() -> None:
    """Answer a shell that asks through the environment, and end the process."""
    import argcomplete

    top = parser()
    _give_completers(top, ())
    argcomplete.autocomplete(top, always_complete_options=False)


def experiments(arguments: argparse.Namespace) -> Iterator[str]:
    """Ids, names of baselines, and `@last`."""
    yield "@last"
    yield from (path.name for path in _experiments())
    yield from _baselines(arguments)


def run_tasks(arguments: argparse.Namespace) -> Iterator[str]:
    """Run tasks of the experiment or plan that the command names earlier."""
    given = vars(arguments)
    named = next(
        (given[key] for key in ("experiment", "target", "baseline", "what") if given.get(key)), None
    )
    if named is not None and not str(named).endswith((".yaml", ".yml")):
        folder = _find(str(named))
        yield from json.loads((folder / "chosen.json").read_text(encoding="utf-8"))
        return
    import yaml

    plan = yaml.safe_load(Path(named or given["plan"]).read_text(encoding="utf-8"))
    yield from (one["name"] for one in plan["run_tasks"])


def definitions(*kinds: str, prefixed: bool = False) -> Complete:
    """Names of definitions of some kinds; as `KIND/NAME` if a verb takes any kind."""

    def names(arguments: argparse.Namespace) -> Iterator[str]:
        more = getattr(arguments, "registry", None) or []
        for registry in (
            share_dir() / "registries",
            site_dir(),
            user_dir(),
            Path("registries"),
            *more,
        ):
            for kind in kinds:
                top = Path(registry) / kind
                for parent, _, files in os.walk(top):
                    for file in files:
                        if file.endswith(".yaml") and not file.endswith(".dev.yaml"):
                            place = Path(parent, file).relative_to(top).with_suffix("")
                            yield f"{kind}/{place}" if prefixed else str(place)

    return names


def _baselines(arguments: argparse.Namespace) -> Iterator[str]:
    from hpcbench.experiment.baselines import baselines

    yield from (one.name for one in baselines(_home()))


def _experiments() -> list[Path]:
    """Experiments of the home, newest first."""
    folder = _home() / "experiments"
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if (path / "manifest.json").exists())
    return sorted(found, key=lambda path: path.name, reverse=True)


def _find(wanted: str) -> Path:
    """The experiment with this name, as exactly as a completion needs it."""
    if "/" in wanted:
        return Path(wanted)
    beginning = "" if wanted == "@last" else wanted
    return next(path for path in _experiments() if path.name.startswith(beginning))


def _home() -> Path:
    """Same as `layout.home`, from the profile's text."""
    chosen = os.environ.get("HPCBENCH_HOME")
    profile = user_dir() / "sites/default.yaml"
    if not chosen and profile.is_file():
        import yaml

        chosen = yaml.safe_load(profile.read_text(encoding="utf-8")).get("home")
    return Path(os.path.expandvars(chosen or "~/hpcbench")).expanduser().absolute()


EVERY_KIND = definitions(
    "models", "datasets", "ml_tasks", "prompts", "metrics", "images", "sites", "gates", "reports",
    prefixed=True,
)  # fmt: skip
"""Completion for verbs that take definitions of any kind."""

BY_ARGUMENT: dict[str, Complete] = {
    "experiment": experiments, "experiments": experiments, "baseline": experiments,
    "candidate": experiments, "candidates": experiments, "target": experiments,
    "confirmed_by": experiments, "regress": _baselines,
    "run_task": run_tasks, "run_tasks": run_tasks,
    "model": definitions("models"), "dataset": definitions("datasets"), "ml_task": definitions("ml_tasks"),
    "metric": definitions("metrics"), "policy": definitions("gates"), "site": definitions("sites"),
    "image": definitions("images"),
}  # fmt: skip
"""Name of an argument or option, in any verb → its completion."""

BY_VERB: dict[tuple[str, ...], dict[str, Complete]] = {
    ("baseline", "show"): {"name": _baselines}, ("baseline", "remove"): {"name": _baselines},
    ("registry",): {"name": EVERY_KIND, "a": EVERY_KIND, "b": EVERY_KIND},
    ("new",): {"prompt": definitions("prompts")},
    ("models",): {"names": definitions("models")},
    ("data",): {"name": definitions("datasets"), "names": definitions("datasets")},
    ("metrics",): {"name": definitions("metrics")},
    ("images", "build"): {"images": definitions("images")},
    ("prompts", "show"): {"prompt": definitions("prompts"), "task": definitions("ml_tasks")},
}  # fmt: skip
"""Beginning of a verb → completions of its own arguments."""


def _give_completers(verb: argparse.ArgumentParser, path: tuple[str, ...]) -> None:
    own = {**BY_ARGUMENT, **BY_VERB.get(path[:1], {}), **BY_VERB.get(path[:2], {})}
    for action in verb._actions:
        if isinstance(action.choices, dict):
            for name, below in action.choices.items():
                _give_completers(below, (*path, name))
        elif action.dest in own and action.choices is None:
            action.completer = _silent(own[action.dest])  # type: ignore[attr-defined]


def _silent(names: Complete) -> Callable[..., list[str]]:
    def completer(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        found: dict[str, None] = {}
        # Completion must not show a fault; names that came before the fault still count.
        with contextlib.suppress(Exception):
            found.update((name, None) for name in names(parsed_args) if name.startswith(prefix))
        return list(found)

    return completer
