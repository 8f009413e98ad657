"""Verbs about images, models, datasets, and prompts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    also,
    group,
    with_caches,
    with_json,
    with_registry,
)


def add(verb: Verb) -> None:
    """Add verbs about images, models, datasets, and prompts."""
    _images(verb)
    models = group(
        verb, "models", "fetch, verify and list models",
        "hpcbench models fetch Qwen/Qwen2.5-VL-7B-Instruct",
    )  # fmt: skip
    verify = models(
        "verify", "registry:verify_model",
        "read every byte of a model, and compare it with its definition or lock the definition",
        "hpcbench models verify tiny-vlm",
    )  # fmt: skip
    verify.add_argument(
        "names", nargs="*", metavar="model",
        help="name of a models/ definition, a URL, or a prefix of a key in the cache",
    )  # fmt: skip
    verify.flag("--repair", "fetch damaged files again")
    verify.set_defaults(kind="models", json=False)
    with_registry(verify)
    with_caches(verify, plan=True)
    _cached(
        models, "models", "fetch", "fetch weights into the cache",
        "hpcbench models fetch Qwen/Qwen2.5-VL-7B-Instruct",
    )  # fmt: skip

    data = group(verb, "data", "make, check and fetch datasets", "hpcbench data check demo_vqa")
    check = data(
        "check", "data:check", "check a dataset: counts, damaged files, contact sheet",
        "hpcbench data check demo_vqa",
    )  # fmt: skip
    check.add_argument("name", help="name of a datasets/ definition")
    check.option("--split", "only this split")
    check.option("--out", "folder for index.html and sheet.png; default: NAME-check", type=Path)
    also(check, with_registry, with_json)
    _add(data)
    _cached(
        data, "datasets", "sync", "fetch datasets into the cache, or their changed files",
        "hpcbench data sync demo_vqa",
    )  # fmt: skip
    checked = data(
        "verify", "data:verify", "read every byte of datasets in the cache again",
        "hpcbench data verify",
    )  # fmt: skip
    checked.add_argument(
        "names", nargs="*", default=[], help="names of datasets, or keys in the cache; default: all"
    )
    checked.flag("--repair", "fetch damaged files again")
    checked.set_defaults(kind="datasets")
    with_registry(checked)
    with_caches(checked, plan=True)
    with_json(checked)

    auth = group(
        verb, "auth", "show, renew and remove OAuth2 tokens of models elsewhere",
        "hpcbench auth status",
    )  # fmt: skip
    with_json(auth(
        "status", "auth:status", "list the tokens in your file, without asking a server",
        "hpcbench auth status",
    ))  # fmt: skip
    for name, text in (
        ("login", "get a new token now, and keep it for all runs"),
        ("forget", "remove a token from your file"),
    ):
        asked = auth(name, f"auth:{name}", text, f"hpcbench auth {name} MODEL")
        asked.add_argument("model", help="name of a models/ definition with `auth`, or its file")
        with_registry(asked)

    upload = verb(
        "upload", "data:upload", "send results to a storage",
        "hpcbench upload @last --to s3://BUCKET/results",
    )  # fmt: skip
    upload.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    upload.option("--to URL", "destination; default: `upload` of the plan")
    with_json(upload)

    prompts = group(
        verb, "prompts", "show prompts", "hpcbench prompts show demo_vqa --sample easy-0001-code"
    )
    shown = prompts(
        "show", "prompts:show", "print the messages that a model gets for a sample",
        "hpcbench prompts show demo_vqa --sample easy-0001-code",
        ("hpcbench prompts show vqa-easy --plan examples/demo/plan.yaml", "of a run task of a plan"),
    )  # fmt: skip
    shown.add_argument("dataset", help="name of a datasets/ definition, or of a run task of --plan")
    shown.option("--sample", "id of the sample; default: the first")
    shown.option("--prompt", "name of a prompts/ definition; default: the ML task's prompt")
    shown.option("--task", "name of an ml_tasks/ definition; default: vqa")
    shown.option("--model", "also show the text of this model's chat template")
    shown.option(
        "--plan", "use the run task of this plan with this name or dataset (and prompt, and model)",
        type=Path,
    )  # fmt: skip
    also(shown, with_registry, with_json)
    _serve(verb)


def _images(verb: Verb) -> None:
    images = group(
        verb, "images", "build, verify and list images", "hpcbench images build vllm-openai"
    )
    build = images(
        "build", "images:build", "build images as SIF files in the cache, with their packages",
        "hpcbench images build vllm-openai",
    )  # fmt: skip
    build.add_argument(
        "images", nargs="+", help="names of images/ definitions, docker://…, oci-archive:FILE, FILE.sif",
    )  # fmt: skip
    also(build, with_registry, with_json)
    with_json(
        images("list", "images:list_images", "list the images in the cache", "hpcbench images list")
    )
    show = images(
        "show", "images:show", "show the source and the content of an image",
        "hpcbench images show vllm-openai",
    )  # fmt: skip
    show.add_argument("image", help="prefix of its digest, or part of its source")
    with_json(show)
    verify = images(
        "verify", "images:verify", "read images again and compare them with their records",
        "hpcbench images verify",
    )  # fmt: skip
    verify.add_argument("images", nargs="*", default=[], help="prefixes of digests; default: all")
    with_json(verify)
    prune = images(
        "prune", "images:prune", "remove interrupted builds and, by age or size, unused images",
        "hpcbench images prune --older 90 --dry-run",
    )  # fmt: skip
    _prune_options(prune)
    save = images(
        "save", "images:save_images", "write images into a file for another cluster",
        "hpcbench images save vllm-openai --with-hpcbench --out images.tar",
    )  # fmt: skip
    save.add_argument(
        "images", nargs="*", default=[], help="prefixes of digests, or parts of their sources"
    )
    save.flag("--with-hpcbench", "add hpcbench itself, for a login node without internet")
    save.option(
        "--python 3.x", "version of Python on that login node; default: %(default)s",
        default=f"{sys.version_info[0]}.{sys.version_info[1]}",
    )  # fmt: skip
    save.option("--out", "the file; default: %(default)s", type=Path, default=Path("images.tar"))
    restored = images(
        "restore", "images:restore_images", "take images from a file of `images save` into the cache",
        "hpcbench images restore images.tar",
    )  # fmt: skip
    restored.add_argument("file", type=Path, help="file from `hpcbench images save`")
    lock = images(
        "lock", "registry:lock_image", "ask the image registry for the digest of a tag",
        "hpcbench images lock vllm-openai",
    )  # fmt: skip
    lock.add_argument("image", help="name of an images/ definition, or docker://…")
    with_registry(lock)


def _add(verbs: Verb) -> None:
    """Add the verb that makes a dataset from ordinary files."""
    add = verbs(
        "add", "data_add:add", "inspect a folder, table, archive or URL; write a dataset and a plan",
        ("hpcbench data add examples/demo/data --annotations kie.jsonl --dry-run", "write nothing"),
        "hpcbench data add FOLDER --annotations answers.csv --answer total,date",
    )  # fmt: skip
    add.add_argument(
        "source", help="folder, table, .zip or .tar; or s3://…, sftp://…, https://…, hf://…"
    )
    add.option("--name", "name of the dataset; default: the name of the source")
    add.option("--annotations FILE", "table of the answers, in the folder or elsewhere")
    add.option("--answer COLUMN,…", "columns of the right answer; several: one JSON object")
    add.option("--question COLUMN|TEXT", "column of the question, or one text for all samples")
    add.option("--task NAME", "ML task: vqa, kie, ocr, classification, …")
    add.option("--model NAME", "model of the plan; default: one that can run on this site")
    add.option(
        "--out", "registry to write to; default: %(default)s", type=Path, default=Path("registries")
    )
    add.flag("--force", "replace the definition and the plan of an earlier `data add`")
    add.flag("--dry-run", "print dataset and plan; write nothing")


def _cached(verbs: Verb, kind: str, bring: str, text: str, example: str) -> None:
    """Add verbs that datasets and models share."""
    verb = "models" if kind == "models" else "data"
    brought = verbs(bring, "data:sync", text, example)
    brought.add_argument("names", nargs="*", help=f"names of {kind}/ definitions, or URLs")
    brought.set_defaults(kind=kind)
    with_registry(brought)
    with_caches(brought, plan=True)
    with_json(brought)
    listing = verbs(
        "list", "data:list_versions", f"list the {kind} in the cache", f"hpcbench {verb} list"
    )
    listing.set_defaults(kind=kind)
    with_caches(listing)
    with_json(listing)
    prune = verbs(
        "prune", "data:prune", f"remove interrupted transfers and, by age or size, unused {kind}",
        f"hpcbench {verb} prune --older 90 --dry-run",
    )  # fmt: skip
    _prune_options(prune)
    prune.set_defaults(kind=kind)
    with_caches(prune)


def _prune_options(prune: Any) -> None:
    prune.option(
        "--free GiB", "free this much space, and remove the least recently used first", type=float
    )
    prune.option("--older DAYS", "remove what was not used for this many days", type=float)
    prune.flag("--dry-run", "list what would be removed; remove nothing")


def _serve(verb: Verb) -> None:
    """Add the verb that serves one model behind the wrapper."""
    serve = verb(
        "serve", "serve:serve", "serve one model by OpenAI's API until Ctrl-C",
        ("hpcbench serve tiny-vlm --port 8000", "here, until Ctrl-C"),
        ("hpcbench serve tiny-vlm --grpc-port 8001", "images byte for byte, for tritonclient"),
        ("hpcbench serve tiny-vlm --job --time-limit 00:30:00", "in a job; the playground finds it"),
        ("hpcbench serve tiny-vlm --stop", "end its jobs"),
        note="Then, with OpenAI's SDK: OpenAI(base_url=\"http://127.0.0.1:8000/v1\", api_key=KEY),\n"
        "with the key from the file that the command prints.",
    )  # fmt: skip
    serve.add_argument(
        "model", help="name of a models/ definition, or its YAML file; with --stop also a job's id"
    )
    with_registry(serve)
    serve.option(
        "--port", "also listen on this TCP port, 0: any free one; default: a Unix socket only", type=int,
    )  # fmt: skip
    serve.option("--host", "address for --port; default: %(default)s", default="127.0.0.1")
    serve.option(
        "--grpc-port PORT",
        "serve gRPC, too, at --host on this TCP port, 0: any free one; and on a Unix socket", type=int,
    )  # fmt: skip
    serve.option(
        "--tls-certificate FILE", "PEM file: certificate chain for --grpc-port, needed beyond this machine",
        type=Path,
    )  # fmt: skip
    serve.option("--tls-key FILE", "PEM file: key of --tls-certificate", type=Path)
    serve.flag("--web-socket", "serve WebSocket, too, at /v1/stream of socket and --port")
    serve.option("--media-root DIR", "folder whose images requests may name as file://", type=Path)
    serve.option(
        "--restarts N", "start an engine that died again, at most N times; default: %(default)s", type=int,
        default=3,
    )  # fmt: skip
    serve.option(
        "--time-limit [D-]HH:MM:SS", "end after this time; default: none, with --job one hour"
    )
    way = serve.add_mutually_exclusive_group()
    way.add_argument(
        "--job", action="store_true",
        help="serve in a job of Slurm, or in the background where the site has no Slurm",
    )  # fmt: skip
    way.add_argument("--stop", action="store_true", help="end jobs that --job has started")
    way.add_argument("--as-job", metavar="ID", help=argparse.SUPPRESS)
