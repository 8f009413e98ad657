"""`hpcbench VERB …`: the parser, and the one place where errors become lines and exit codes.

Nothing heavy is imported here, not even of the standard library: `hpcbench --help` answers at once, and
each verb imports what it needs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.errors import HpcbenchError, UserError

EPILOG = """\
examples:
  hpcbench init                      look at this cluster, write a site profile
  hpcbench doctor --run              check it, and send a tiny model through one real job
  hpcbench validate plan.yaml        every mistake at its line, nothing sent
  hpcbench submit plan.yaml --dry-run
  hpcbench submit plan.yaml --wait
  hpcbench status @last

exit codes: 0 done · 1 the run failed · 2 your input · 3 the environment
"""

Verb = Callable[[str, str, str, str], argparse.ArgumentParser]
"""Adds a verb: name, function, text, example."""

EXPERIMENT = "experiment: id, unique beginning of one, path, or @last"


def entry() -> None:
    """The console script."""
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parser().parse_args(argv)
    try:
        module, function = arguments.run.split(":")
        code = getattr(importlib.import_module(module), function)(arguments)
        sys.stdout.flush()
        return int(code or 0)
    except HpcbenchError as error:
        if isinstance(error, UserError) and getattr(arguments, "json", False):
            _print_problems(error)
        print(f"hpcbench: {error}" if error.exit_code != 2 else str(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as bug:  # noqa: BLE001 - the last net: a user never meets a traceback
        return _report_bug(bug)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="hpcbench",
        description="Benchmark vision-language models on document work on Slurm clusters.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hpcbench {hpcbench.__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, run: str, text: str, example: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"example: {example}",
        )
        added.set_defaults(run=f"hpcbench.cli.{run}")
        return added

    submit = verb(
        "submit", "submit:submit", "run an experiment plan", "hpcbench submit plan.yaml --wait"
    )
    submit.add_argument("plan", type=Path, help="the plan's YAML file")
    _registry(submit)
    _settings(submit)
    submit.add_argument(
        "--dry-run", action="store_true", help="print jobs, shards and sbatch text; touch nothing"
    )
    submit.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    _json(submit)

    _load(verb)

    resume = verb(
        "resume", "submit:resume", "go on with an experiment", "hpcbench resume 20261120-1432-demo"
    )
    resume.add_argument("experiment", help=EXPERIMENT)
    resume.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    _json(resume)

    cancel = verb("cancel", "submit:cancel", "end an experiment's jobs", "hpcbench cancel @last")
    cancel.add_argument("experiment", help=EXPERIMENT)

    listing = verb("list", "show:list_experiments", "list experiments", "hpcbench list")
    _json(listing)

    status = verb("status", "show:status", "show how far an experiment is", "hpcbench status @last")
    status.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    _json(status)

    watch = verb("watch", "show:watch", "follow an experiment to its end", "hpcbench watch @last")
    watch.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)

    logs = verb("logs", "show:logs", "show logs of workers and jobs", "hpcbench logs @last")
    logs.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    logs.add_argument("name", nargs="?", help="show the end of this log; none: list all")
    logs.add_argument("-n", "--lines", type=int, default=40, help="lines to show (%(default)s)")
    _json(logs)

    report = verb("report", "show:report", "print scores and the report's path", "hpcbench report")
    report.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    _json(report)

    init = verb("init", "setup:init", "look at this cluster, write a site profile", "hpcbench init")
    init.add_argument("--force", action="store_true", help="replace the profile there is")
    init.add_argument("--dry-run", action="store_true", help="print the profile; write nothing")

    doctor = verb("doctor", "setup:doctor", "check this machine", "hpcbench doctor --run")
    doctor.add_argument(
        "--run", dest="real_run", action="store_true",
        help="also send the tiny model through one real job",
    )  # fmt: skip
    doctor.add_argument(
        "--image", metavar="REF",
        help="image for that job (docker://…, a .sif); it needs transformers; none: this Python",
    )  # fmt: skip
    _json(doctor)
    _documents(verb)
    _plugins(verb)
    _serve(verb)
    return top


def _serve(verb: Verb) -> None:
    """The verb that has one model behind the wrapper."""
    serve = verb(
        "serve", "serve:serve", "serve one model by OpenAI's API until Ctrl-C",
        "hpcbench serve tiny-vlm --port 8000",
    )  # fmt: skip
    serve.add_argument("model", help="name of a models/ document, or its YAML file")
    _registry(serve)
    serve.add_argument("--port", type=int, help="TCP port besides; none: a Unix socket alone")
    serve.add_argument("--host", default="127.0.0.1", help="address for --port (%(default)s)")
    serve.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder whose images may be named as file://"
    )
    serve.add_argument(
        "--restarts", type=int, default=3, metavar="N",
        help="how often an engine that died is started again (%(default)s)",
    )  # fmt: skip


def _load(verb: Verb) -> None:
    """The verb that measures speed under load."""
    load = verb(
        "load", "load:load", "run a plan at several loads: rates, latencies, goodput, the knee",
        "hpcbench load plan.yaml --concurrency 1,8,64 --slo ttft=500,tpot=50 --wait; in requests a second: "
        "hpcbench load plan.yaml --rate 0.5,1,2 --requests 200",
    )  # fmt: skip
    load.add_argument("plan", type=Path, help="the plan's YAML file")
    _registry(load)
    _settings(load)
    load.add_argument(
        "--concurrency", metavar="N,N,…",
        help="points with so many requests always in flight; none and no --rate: the plan's own sweep, "
        "else 1, 2, 4, … 64 as far as there are four samples for each",
    )  # fmt: skip
    load.add_argument("--rate", metavar="R,R,…", help="points with so many requests a second")
    load.add_argument(
        "--arrival",
        choices=["poisson", "constant"],
        help="how the requests of a rate come (poisson)",
    )
    load.add_argument("--requests", type=int, metavar="N", help="samples of each point (all)")
    load.add_argument(
        "--warm-up", type=int, metavar="N", help="samples asked before each point, not counted (8)"
    )
    load.add_argument(
        "--slo", metavar="NAME=MS,…", help="what a good answer keeps: ttft=500,tpot=50,e2e=10000"
    )
    load.add_argument(
        "--run-task",
        action="append",
        metavar="NAME",
        help="only this of the plan's run tasks; may be repeated",
    )
    load.add_argument("--dry-run", action="store_true", help="print points and jobs; touch nothing")
    load.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    _json(load)


def _documents(verb: Verb) -> None:
    """Verbs about documents."""
    validate = verb(
        "validate", "registry:validate", "check a plan, or all documents there are",
        "hpcbench validate plan.yaml --set run_tasks.0.limit=20",
    )  # fmt: skip
    validate.add_argument(
        "plan", type=Path, nargs="?", help="the plan's YAML file; none: all documents"
    )
    validate.add_argument(
        "--packages",
        action="store_true",
        help="also build the packages it uses, and check their plugins",
    )
    _registry(validate)
    _settings(validate)
    _json(validate)

    schema = verb(
        "schema", "registry:schema", "write JSON Schemas of the documents", "hpcbench schema models"
    )
    schema.add_argument("kind", nargs="?", help="models, datasets, …; none: all")
    schema.add_argument("--out", type=Path, metavar="DIR", help="write KIND.json files there")
    schema.add_argument("--markdown", action="store_true", help="print the reference page instead")

    registry = verb(
        "registry", "", "look at documents", "hpcbench registry show models/tiny-vlm --resolved"
    ).add_subparsers(metavar="VERB", required=True)
    listing = _sub(registry, "list", "registry:list_documents", "list documents")
    listing.add_argument("kind", nargs="?", help="only of this kind")
    show = _sub(registry, "show", "registry:show", "show a document")
    show.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    show.add_argument(
        "--resolved",
        action="store_true",
        help="with overlays and defaults, and where each value is from",
    )
    _settings(show)
    where = _sub(registry, "where", "registry:where", "tell the files of a document")
    where.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    differ = _sub(registry, "diff", "registry:diff", "compare two documents, defaults filled in")
    differ.add_argument("a", help="KIND/NAME")
    differ.add_argument("b", help="KIND/NAME")
    for one in (listing, show, where, differ):
        _registry(one)
    for one in (listing, show, where):
        _json(one)

    importing = verb(
        "import", "registry:import_plans", "turn plans of other programs into ours",
        "hpcbench import --from v01 user_config.csv --vlm-base vlm_base.csv --out imported",
    )  # fmt: skip
    importing.add_argument("file", type=Path, help="user_config.csv")
    importing.add_argument("--from", dest="form", choices=["v01"], required=True, help="its form")
    importing.add_argument("--vlm-base", type=Path, help="vlm_base.csv, the base of models")
    importing.add_argument(
        "--data-dirs", type=Path, help="folder with Datasets/ and PromptCollections/"
    )
    importing.add_argument(
        "--out", type=Path, default=Path("imported"), help="new folder (%(default)s)"
    )

    images = verb(
        "images", "", "look after images", "hpcbench images build vllm-openai"
    ).add_subparsers(metavar="VERB", required=True)
    build = _sub(images, "build", "images:build", "have images as SIF in the cache, with packages")
    build.add_argument(
        "images",
        nargs="+",
        help="names of images/ documents, docker://…, oci-archive:FILE, FILE.sif",
    )
    _registry(build)
    _json(build)
    _json(_sub(images, "list", "images:list_images", "list the images in the cache"))
    show = _sub(images, "show", "images:show", "what an image was built from, and what is in it")
    show.add_argument("image", help="beginning of its digest, or what it was built from")
    _json(show)
    verify = _sub(
        images, "verify", "images:verify", "read images again and hold them against their records"
    )
    verify.add_argument("images", nargs="*", help="beginnings of digests (all)")
    _json(verify)
    prune = _sub(images, "prune", "images:prune", "remove images that nobody needs")
    prune.add_argument("--free", type=float, metavar="GB", help="until so many GiB are free again")
    prune.add_argument("--older", type=float, metavar="DAYS", help="what was not used for so long")
    prune.add_argument("--dry-run", action="store_true", help="only tell")
    save = _sub(
        images, "save", "images:save_images", "write images into a file for another cluster"
    )
    save.add_argument(
        "images", nargs="*", help="beginnings of digests, or what they were built from"
    )
    save.add_argument(
        "--with-hpcbench",
        action="store_true",
        help="and hpcbench itself, for a login node without internet",
    )
    save.add_argument(
        "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", metavar="3.x",
        help="of that login node (%(default)s)",
    )  # fmt: skip
    save.add_argument("--out", type=Path, default=Path("images.tar"), help="the file (%(default)s)")
    restored = _sub(images, "restore", "images:restore_images", "take images out of such a file")
    restored.add_argument("file", type=Path, help="what `images save` wrote")
    lock = _sub(
        images, "lock", "registry:lock_image", "ask the registry for the digest behind a tag"
    )
    lock.add_argument("image", help="name of an images/ document, or docker://…")
    _registry(lock)
    models = verb(
        "models", "", "look after models", "hpcbench models fetch Qwen/Qwen2.5-VL-7B-Instruct"
    ).add_subparsers(metavar="VERB", required=True)
    verify = _sub(
        models, "verify", "registry:verify_model", "hash a model's files, compare or lock"
    )
    verify.add_argument("model", help="name of a models/ document")
    _registry(verify)
    _cached(models, "models", "fetch", "bring weights into the cache")

    data = verb("data", "", "look after datasets", "hpcbench data check docvqa").add_subparsers(
        metavar="VERB", required=True
    )
    check = _sub(
        data, "check", "data:check", "look at a dataset: counts, broken files, contact sheet"
    )
    check.add_argument("name", help="name of a datasets/ document")
    check.add_argument("--split", help="only of this split")
    check.add_argument("--out", type=Path, help="folder for index.html and sheet.png (NAME-check)")
    _registry(check)
    _json(check)
    add = _sub(data, "add", "data:add", "look at a folder or URL, write a document for it")
    add.add_argument("source", help="folder, or s3://…, sftp://…, https://…")
    add.add_argument("--name", help="name of the document; none: that of the folder")
    add.add_argument(
        "--out", type=Path, default=Path("registries"), help="registry to write to (%(default)s)"
    )
    add.add_argument("--dry-run", action="store_true", help="print the document; write nothing")
    _cached(data, "datasets", "sync", "bring datasets into the cache, or what changed of them")
    checked = _sub(data, "verify", "data:verify", "read every byte of the cache again")
    checked.add_argument("names", nargs="*", help="names of datasets, or keys; none: all")
    checked.add_argument("--repair", action="store_true", help="bring again what is damaged")
    checked.set_defaults(kind="datasets")
    _registry(checked)
    _json(checked)

    upload = verb("upload", "data:upload", "send results to a storage", "hpcbench upload @last")
    upload.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    upload.add_argument("--to", metavar="URL", help="place for it; none: those of the plan")
    _json(upload)

    export = verb(
        "export", "export:export",
        "send prompts and responses elsewhere as traces, or print speed under another kit's names",
        "hpcbench export @last --to phoenix --url http://localhost:6006; hpcbench export @last --compat vllm",
    )  # fmt: skip
    export.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    place = export.add_mutually_exclusive_group(required=True)
    place.add_argument("--to", choices=["phoenix"], help="Arize Phoenix")
    place.add_argument(
        "--compat",
        choices=["vllm", "sglang", "guidellm", "aiperf"],
        help="what this kit's benchmark would have printed, by its own definitions",
    )
    export.add_argument("--url", help="address of Phoenix; a key is taken from PHOENIX_API_KEY")
    export.add_argument("--project", help="project there; none: the plan's name")
    _json(export)

    prompts = verb(
        "prompts", "", "look at prompts", "hpcbench prompts show demo_vqa --sample 0001-total"
    ).add_subparsers(metavar="VERB", required=True)
    shown = _sub(prompts, "show", "prompts:show", "print the messages a model gets for a sample")
    shown.add_argument("dataset", help="name of a datasets/ document")
    shown.add_argument("--sample", help="its id; none: the first")
    shown.add_argument("--prompt", help="name of a prompts/ document; none: the ML task's")
    shown.add_argument("--task", default="vqa", help="name of an ml_tasks/ document (%(default)s)")
    shown.add_argument("--model", help="also as the model's chat template writes it")
    shown.add_argument(
        "--plan", type=Path, help="as the run task of this plan that uses the dataset"
    )
    _registry(shown)
    _json(shown)


def _cached(verbs: Any, kind: str, bring: str, text: str) -> None:
    """Verbs that datasets and models share."""
    brought = _sub(verbs, bring, "data:sync", text)
    brought.add_argument("names", nargs="+", help=f"names of {kind}/ documents, or URLs")
    brought.set_defaults(kind=kind)
    _registry(brought)
    _json(brought)
    listing = _sub(verbs, "list", "data:list_versions", "list what the cache holds")
    listing.set_defaults(kind=kind)
    _json(listing)
    prune = _sub(verbs, "prune", "data:prune", "remove from the cache what nobody needs")
    prune.add_argument("--free", type=float, metavar="GB", help="until so many GiB are free again")
    prune.add_argument("--older", type=float, metavar="DAYS", help="what was not used for so long")
    prune.add_argument("--dry-run", action="store_true", help="only tell")
    prune.set_defaults(kind=kind)


def _plugins(verb: Verb) -> None:
    """Verbs about plugins."""
    plugins = verb(
        "plugins", "", "list, begin and check plugins", "hpcbench plugins new metrics word_count"
    ).add_subparsers(metavar="VERB", required=True)
    listing = _sub(plugins, "list", "plugins:list_plugins", "list plugins that are installed")
    listing.add_argument("kind", nargs="?", help="only of this kind")
    _json(listing)
    new = _sub(plugins, "new", "plugins:new", "write a working package with a test")
    new.add_argument("kind", help="datasets, engines, metrics, …")
    new.add_argument("name", help="name of the plugin, lower case")
    new.add_argument("--out", type=Path, help="folder to make (hpcbench-NAME)")
    check = _sub(
        plugins, "check", "plugins:check", "run the contract tests of its kinds on a package"
    )
    check.add_argument("path", type=Path, help="folder of the package, with its pyproject.toml")
    _json(check)


def _sub(verbs: Any, name: str, run: str, text: str) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    added.set_defaults(run=f"hpcbench.cli.{run}")
    return added


def _registry(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--registry", type=Path, action="append", default=[], metavar="DIR",
        help="further registry of documents; may be repeated, the last one wins",
    )  # fmt: skip


def _settings(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="PATH=VALUE",
        help="set a value of the plan, run_tasks.NAME.limit=20, or of a document, models/X:dtype=float16",
    )  # fmt: skip


def _json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def _print_problems(error: UserError) -> None:
    """What is wrong, for programs: an editor marks the places."""
    import json
    from dataclasses import asdict

    print(
        json.dumps(
            {"problems": [asdict(one) for one in error.problems]}, ensure_ascii=False, indent=2
        )
    )


def _report_bug(bug: BaseException) -> int:
    """The traceback goes to a file, one line to the user."""
    import tempfile
    import time
    import traceback

    text = "".join(traceback.format_exception(type(bug), bug, bug.__traceback__))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    descriptor, path = tempfile.mkstemp(prefix=f"hpcbench-bug-{stamp}-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"hpcbench {hpcbench.__version__}, Python {sys.version}\n\n{text}")
    print(
        f"hpcbench: a bug of hpcbench: {type(bug).__name__}: {bug}\n"
        f"  the traceback is in {path}; please report it",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    entry()
