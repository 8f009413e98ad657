"""Verbs that set up: init, doctor."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hpcbench import installed
from hpcbench.cli import at_site
from hpcbench.cli.output import (
    console,
    finish,
    print_json,
    say,
)
from hpcbench.cli.questions import ask, at_terminal
from hpcbench.environments.offline_packages import own_wheel
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.catalog import share_dir, site_dir, user_dir, user_site
from hpcbench.registry.resolve import load_model, load_plan, models_that_say
from hpcbench.registry.settings import Setting, read_settings
from hpcbench.registry.sites import findings
from hpcbench.registry.source import Source, overlay, parse, read, validate
from hpcbench.registry.upgrade import upgrade
from hpcbench.schema.site import Site
from hpcbench.site.doctor import (
    Check,
    asking_job,
    checks,
    gpus_of_nodes,
    may_submit,
)
from hpcbench.site.profile import (
    Ask,
    Choice,
    NodeGpus,
    detect,
    take_default,
)
from hpcbench.submit.prepare import prepare
from hpcbench.submit.rounds import submit_first

if TYPE_CHECKING:
    from hpcbench.oauth.options import AuthOptions

PIPELINES = {
    "github": (Path(".github/workflows/hpcbench.yml"), ""),
    "gitlab": (
        Path(".gitlab/hpcbench.yml"),
        ", and in .gitlab-ci.yml: `include: [{local: .gitlab/hpcbench.yml}]`",
    ),
}
"""Service → path of its pipeline in a repository, and the remaining step."""

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def init(arguments: argparse.Namespace) -> int:
    """`hpcbench init`."""
    if arguments.ci:
        return _pipeline(arguments)
    if arguments.ssh or arguments.site:
        return at_site.init(arguments)
    path = user_dir() / "sites" / "default.yaml"
    if path.exists() and not arguments.force and not arguments.dry_run:
        raise UserError("this site profile exists already", file=path, remedy="--force replaces it")
    settings = _settings(arguments.settings)
    local = any(one.path == ("executor",) and one.value == "local" for one in settings)
    shared = _shared_profile()
    site = detect(
        _answers(settings, shared, _on_terminal if at_terminal() else take_default),
        say,
        local=local,
    )
    # Values equal to a default are left out, except the lines that a user will want to edit.
    data = site.model_dump(mode="json", exclude_defaults=True)
    data = {"schema_version": 1, **data, "executor": site.executor}
    source = _with(settings, path, data, shared)
    schema = share_dir() / "registries" / "schemas" / "sites.json"
    text = f"# yaml-language-server: $schema={schema}\n"
    text += "# Site profile of this cluster. All fields: `hpcbench schema sites`\n"
    if shared is not None:
        text += (
            f"# Fields of {shared.path} are copied here: this file replaces that one as a whole.\n"
        )
        say(f"took the fields of {shared.path}, the profile of all users here")
    text += yaml.safe_dump(source.data, sort_keys=False, allow_unicode=True)
    if arguments.dry_run:
        print(text, end="")
        return 0
    write_atomic(path, text)
    print(f"wrote {path}; next: hpcbench doctor --run")
    return 0


def _pipeline(arguments: argparse.Namespace) -> int:
    """`hpcbench init --ci github|gitlab`."""
    path, then = PIPELINES[arguments.ci]
    wheel = path.parents[-2] / f"{installed.stem()}-py3-none-any.whl"
    text = (share_dir() / "ci_templates" / f"{arguments.ci}.yml").read_text(encoding="utf-8")
    text = text.replace("{hpcbench}", installed.NAME if installed.PUBLISHED else str(wheel))
    if arguments.dry_run:
        print(text, end="")
        return 0
    if path.exists() and not arguments.force:
        raise UserError("this pipeline exists already", file=path, remedy="--force replaces it")
    write_atomic(path, text)
    if not installed.PUBLISHED:
        size = own_wheel(wheel.parent).stat().st_size / 1e6
        say(f"wrote {wheel} ({size:.0f} MB), which the pipeline installs: commit it too")
    print(f"wrote {path}; next: name your plan at its top{then}")
    return 0


def _settings(texts: Sequence[str]) -> tuple[Setting, ...]:
    settings = read_settings(texts)
    for setting in settings:
        if setting.definition not in (None, "sites/default"):
            what = f"init writes sites/default, not {setting.definition}"
            remedy = "give a field of the profile, for example slurm.account=NAME"
            raise UserError(Problem(what, f"--set {setting.text}", 1, 1, remedy))
    _with(settings, Path("default.yaml"), Site(name="default").model_dump(mode="json"))
    return settings


def _shared_profile() -> Source | None:
    """The profile that the cluster's administrators keep for all users; None: there is none."""
    path = site_dir() / "sites" / "default.yaml"
    return upgrade("sites", read(path)) if path.is_file() else None


def _with(
    settings: Sequence[Setting], path: Path, data: Mapping[str, Any], shared: Source | None = None
) -> Source:
    """A profile with the shared profile and then the settings laid over; raises all its mistakes."""
    source = parse(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    if shared is not None:
        source = overlay(source, shared)
    for setting in settings:
        source = setting.applied(source)
    definition = validate(Site, source)
    if wrong := [source.problem(*finding) for finding in findings(definition)]:
        raise UserError(*wrong)
    return source


def _leaves(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each field of a profile: `slurm.partition`, `gpu`."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _answers(settings: Sequence[Setting], shared: Source | None, otherwise: Ask) -> Ask:
    """An `Ask` that takes values of the settings and of the shared profile, and asks the other questions."""
    given = dict(_leaves(shared.data)) if shared is not None else {}
    given |= {".".join(setting.path): setting.value for setting in settings}

    def answer(path: str, question: str, choices: Sequence[Choice], default: str) -> str:
        if path in given:
            return "" if given[path] is None else str(given[path])
        return otherwise(path, question, choices, default)

    return answer


def _on_terminal(path: str, question: str, choices: Sequence[Choice], default: str) -> str:
    return ask(question, choices, default, free=path == "home")


def doctor(arguments: argparse.Namespace) -> int:
    """`hpcbench doctor`."""
    site = user_site() or Site(name="default")
    if arguments.nodes is not None:
        _check_nodes(arguments, site)
    found = [*checks(site, real_run=arguments.real_run), *_tokens(arguments.registry)]
    failed = [check for check in found if check.state == "failed"]
    if arguments.json:
        print_json([asdict(check) for check in found])
    else:
        for check in found:
            _print(check)
    if failed:
        raise EnvironmentFault(
            f"{len(failed)} checks failed", remedy="do what the lines with → say, and repeat it"
        )
    return _real_run(arguments.image, arguments.nodes) if arguments.real_run else 0


def _tokens(registries: Sequence[Path]) -> Iterator[Check]:
    """Ask the token server of each model that needs tokens, once for each credential."""
    asked: set[tuple[str, ...]] = set()
    names = {name: None for word in ("auth", "jwt") for name in models_that_say(word, registries)}
    for name in names:
        try:
            model = load_model(name, registries)
        except UserError as error:
            first = error.problems[0]
            yield Check("token", "warning", f"{name}: {first.message}", first.remedy)
            continue
        if model.engine != "remote":
            continue
        from hpcbench.oauth import token_check  # only for those who have such a model

        options = token_check.credential(model.engine, model.engine_options)
        if options is None or (who := (options.key, *options.secrets)) in asked:
            continue
        asked.add(who)
        yield _token(name, options, allow_http=bool(model.engine_options.get("allow_http")))


def _token(name: str, options: AuthOptions, *, allow_http: bool) -> Check:
    from hpcbench.oauth import token_check
    from hpcbench.oauth.keeper import TokenFailed

    try:
        granted = token_check.probe(options, say, allow_http=allow_http)
    except EnvironmentFault as fault:
        return Check("token", "warning", f"{name}: {fault.message}", fault.remedy)
    except TokenFailed as failure:
        remedy = "correct `auth` in the model's engine_options, or try it again later"
        return Check("token", "failed", f"{name}: {failure}", remedy)
    lifetime = granted.token.lifetime
    return Check("token", "ok", f"{name}: {options.server} gives tokens that live {lifetime:g} s")


def _print(check: Check) -> None:
    mark, colour = MARKS[check.state]
    out = console()
    out.print(f"[{colour}]{mark}[/] {check.name}: ", end="")
    out.print(check.detail, markup=False, soft_wrap=True)
    if check.remedy:
        out.print(f"    → {check.remedy}", markup=False, style="dim", soft_wrap=True)


def _check_nodes(arguments: argparse.Namespace, site: Site) -> None:
    if not arguments.real_run:
        raise UserError("--nodes needs a job", remedy="add --run")
    if arguments.nodes < 2:
        raise UserError(f"--nodes {arguments.nodes}: a network needs two nodes", remedy="--nodes 2")
    if site.executor != "slurm":
        what = "--nodes needs `executor: slurm` in the site profile"
        raise UserError(what, remedy="`hpcbench init` writes one on a login node")


def _real_run(image: str | None, nodes: int | None) -> int:
    """Run the tiny model in one real job: in an image on the site's GPUs, or in this Python.

    Args:
        image: the image; None: this Python.
        nodes: number of nodes between which the network is measured; None: it is not.
    """
    plan = share_dir() / "examples" / "demo" / "doctor.yaml"
    resolved = load_plan(plan)
    on_slurm = resolved.executor == "slurm"
    if image is not None:
        update = {"image": image, "gpus": 1 if on_slurm else 0}
        tasks = [
            task.model_copy(update={"model": task.model.model_copy(update=update)})
            for task in resolved.run_tasks
        ]
        resolved = resolved.model_copy(update={"run_tasks": tuple(tasks)})
    asked = resolved
    if on_slurm:
        asked = resolved.model_copy(update={"site": asking_job(resolved.site)})
    experiment = prepare(asked, plan, say)
    submit_first(experiment)
    code = finish(experiment)
    if on_slurm:
        if (answer := may_submit(resolved.site)) is not None:
            _remember(answer, resolved.site)
        if (found := gpus_of_nodes(resolved.site)) is not None:
            _remember_gpus(found, resolved.site)
        elif _expects_cuda(resolved.site):
            say(
                "nvidia-smi did not answer on the node, so hpcbench cannot check the CUDA of images"
            )
    if nodes is not None and not code:
        from hpcbench.site.link import measured  # brings the worker's modules

        for line in measured(experiment, nodes, say).described():
            print(line)
    return code


def _expects_cuda(site: Site) -> bool:
    """Whether the profile has NVIDIA GPUs, and not the CUDA that their driver supports."""
    gpus = any(one.gpus for one in site.slurm.partitions.values())
    return gpus and site.container.gpu_maker == "nvidia" and site.container.cuda is None


def _remember(answer: bool, site: Site) -> None:
    """Report whether jobs may submit jobs; if the user's own profile says otherwise, update it."""
    say(f"compute nodes {'may' if answer else 'may not'} call sbatch")
    if answer == site.slurm.submit_from_jobs:
        return
    path = user_dir() / "sites" / "default.yaml"
    line = f"submit_from_jobs: {str(answer).lower()}"
    if _with_line(path, line):
        print(f"{path}: slurm: {line}")
    else:
        print(f"write `{line}` below `slurm:` of the site profile")


def _remember_gpus(found: NodeGpus, site: Site) -> None:
    """Report a node's GPUs, and write its CUDA and driver versions into the user's own profile."""
    say(f"GPUs of a node: {found}")
    path = user_dir() / "sites" / "default.yaml"
    for key, value in (("cuda", found.cuda), ("driver", found.driver)):
        if value is None or value == getattr(site.container, key):
            continue
        line = f'{key}: "{value}"'
        if _with_line(path, line, "container"):
            print(f"{path}: container: {line}")
        else:
            print(f"write `{line}` below `container:` of the site profile")
    partition = site.slurm.partition_of()
    if partition is None or partition.gpu_memory_gb or found.memory_gb is None:
        return
    kinds = list(partition.gpus or {"gpu": 0})
    if len(kinds) == 1:
        line = f"gpu_memory_gb: {{{kinds[0]}: {found.memory_gb:g}}}"
        print(f"write `{line}` below `slurm: partitions: {site.slurm.partition}:` of the profile")


def _with_line(path: Path, line: str, below_key: str = "slurm") -> bool:
    """Insert a line below a key of a profile, with its comments unchanged; returns whether that succeeded."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return False
    lines = text.split("\n")
    if f"{below_key}:" in lines:
        first = last = lines.index(f"{below_key}:") + 1
        while last < len(lines) and (lines[last].startswith(" ") or not lines[last].strip()):
            last += 1
        if first == len(lines) or not lines[first].startswith(" "):
            return False
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        own = f"{indent}{line.partition(':')[0]}:"
        kept = [one for one in lines[first:last] if not one.startswith(own)]
        lines[first:last] = [indent + line, *kept]
    elif re.search(rf"^{below_key}\s*:", text, re.MULTILINE):
        return False  # the key has another notation
    else:
        lines = [*text.rstrip("\n").split("\n"), f"{below_key}:", f"  {line}", ""]
    changed = "\n".join(lines)
    try:
        validate(Site, parse(path, changed))
    except UserError:
        return False
    write_atomic(path, changed)
    return True
