"""Verbs about images, models, datasets, and prompts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    sub,
    with_caches,
    with_json,
    with_registry,
)


def add(verb: Verb) -> None:
    """Verbs about what experiments are made of."""
    images = verb(
        "images", "", "look after images", "hpcbench images build vllm-openai"
    ).add_subparsers(metavar="VERB", required=True)
    build = sub(images, "build", "images:build", "have images as SIF in the cache, with packages")
    build.add_argument(
        "images",
        nargs="+",
        help="names of images/ documents, docker://…, oci-archive:FILE, FILE.sif",
    )
    with_registry(build)
    with_json(build)
    with_json(sub(images, "list", "images:list_images", "list the images in the cache"))
    show = sub(images, "show", "images:show", "what an image was built from, and what is in it")
    show.add_argument("image", help="beginning of its digest, or what it was built from")
    with_json(show)
    verify = sub(
        images, "verify", "images:verify", "read images again and hold them against their records"
    )
    verify.add_argument("images", nargs="*", default=[], help="beginnings of digests (all)")
    with_json(verify)
    prune = sub(images, "prune", "images:prune", "remove images that nobody needs")
    prune.add_argument(
        "--free",
        type=float,
        metavar="GB",
        help="so many GiB of them, what was used longest ago first",
    )
    prune.add_argument("--older", type=float, metavar="DAYS", help="what was not used for so long")
    prune.add_argument("--dry-run", action="store_true", help="only tell")
    save = sub(images, "save", "images:save_images", "write images into a file for another cluster")
    save.add_argument(
        "images", nargs="*", default=[], help="beginnings of digests, or what they were built from"
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
    restored = sub(images, "restore", "images:restore_images", "take images out of such a file")
    restored.add_argument("file", type=Path, help="what `images save` wrote")
    lock = sub(
        images, "lock", "registry:lock_image", "ask the registry for the digest behind a tag"
    )
    lock.add_argument("image", help="name of an images/ document, or docker://…")
    with_registry(lock)
    models = verb(
        "models", "", "look after models", "hpcbench models fetch Qwen/Qwen2.5-VL-7B-Instruct"
    ).add_subparsers(metavar="VERB", required=True)
    verify = sub(
        models, "verify", "registry:verify_model", "read every byte of a model, compare or lock"
    )
    verify.add_argument(
        "names",
        nargs="*",
        metavar="model",
        help="name of a models/ document; a URL or the beginning of a key in the cache",
    )
    verify.add_argument("--repair", action="store_true", help="bring again what is damaged")
    verify.set_defaults(kind="models", json=False)
    with_registry(verify)
    with_caches(verify, plan=True)
    _cached(models, "models", "fetch", "bring weights into the cache")

    data = verb("data", "", "look after datasets", "hpcbench data check docvqa").add_subparsers(
        metavar="VERB", required=True
    )
    check = sub(
        data, "check", "data:check", "look at a dataset: counts, broken files, contact sheet"
    )
    check.add_argument("name", help="name of a datasets/ document")
    check.add_argument("--split", help="only of this split")
    check.add_argument("--out", type=Path, help="folder for index.html and sheet.png (NAME-check)")
    with_registry(check)
    with_json(check)
    _add(data)
    _cached(data, "datasets", "sync", "bring datasets into the cache, or what changed of them")
    checked = sub(data, "verify", "data:verify", "read every byte of the cache again")
    checked.add_argument(
        "names", nargs="*", default=[], help="names of datasets, or keys; none: all"
    )
    checked.add_argument("--repair", action="store_true", help="bring again what is damaged")
    checked.set_defaults(kind="datasets")
    with_registry(checked)
    with_caches(checked, plan=True)
    with_json(checked)

    upload = verb("upload", "data:upload", "send results to a storage", "hpcbench upload @last")
    upload.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    upload.add_argument("--to", metavar="URL", help="place for it; none: those of the plan")
    with_json(upload)

    prompts = verb(
        "prompts", "", "look at prompts", "hpcbench prompts show demo_vqa --sample easy-0001-code"
    ).add_subparsers(metavar="VERB", required=True)
    shown = sub(prompts, "show", "prompts:show", "print the messages a model gets for a sample")
    shown.add_argument("dataset", help="name of a datasets/ document, or of a run task of --plan")
    shown.add_argument("--sample", help="its id; none: the first")
    shown.add_argument("--prompt", help="name of a prompts/ document; none: the ML task's")
    shown.add_argument("--task", help="name of an ml_tasks/ document (vqa)")
    shown.add_argument("--model", help="also as the model's chat template writes it")
    shown.add_argument(
        "--plan",
        type=Path,
        help="as the run task of this plan that has this name or dataset (and prompt, and model)",
    )
    with_registry(shown)
    with_json(shown)
    _serve(verb)


def _add(verbs: Any) -> None:
    """The verb that makes a dataset of ordinary files."""
    add = sub(
        verbs, "add", "data_add:add", "look at a folder, table, archive or URL; write a dataset and a plan",
        "hpcbench data add scans --annotations answers.csv --answer total,date",
    )  # fmt: skip
    add.add_argument(
        "source", help="folder, table, .zip or .tar; or s3://…, sftp://…, https://…, hf://…"
    )
    add.add_argument("--name", help="name of the dataset; none: that of the source")
    add.add_argument(
        "--annotations", metavar="FILE", help="table of the answers, in the folder or elsewhere"
    )
    add.add_argument(
        "--answer", metavar="COLUMN,…", help="columns of the right answer; several: one JSON object"
    )
    add.add_argument(
        "--question", metavar="COLUMN|TEXT", help="column of the question, or one text for all"
    )
    add.add_argument("--task", metavar="NAME", help="ML task: vqa, kie, ocr, classification, …")
    add.add_argument(
        "--model", metavar="NAME", help="model of the plan; none: one that can run here"
    )
    add.add_argument(
        "--out", type=Path, default=Path("registries"), help="registry to write to (%(default)s)"
    )
    add.add_argument("--dry-run", action="store_true", help="print dataset and plan; write nothing")


def _cached(verbs: Any, kind: str, bring: str, text: str) -> None:
    """Verbs that datasets and models share."""
    brought = sub(verbs, bring, "data:sync", text)
    brought.add_argument("names", nargs="*", help=f"names of {kind}/ documents, or URLs")
    brought.set_defaults(kind=kind)
    with_registry(brought)
    with_caches(brought, plan=True)
    with_json(brought)
    listing = sub(verbs, "list", "data:list_versions", "list what the cache holds")
    listing.set_defaults(kind=kind)
    with_caches(listing)
    with_json(listing)
    prune = sub(verbs, "prune", "data:prune", "remove from the cache what nobody needs")
    prune.add_argument(
        "--free",
        type=float,
        metavar="GB",
        help="so many GiB of it, what was used longest ago first",
    )
    prune.add_argument("--older", type=float, metavar="DAYS", help="what was not used for so long")
    prune.add_argument("--dry-run", action="store_true", help="only tell")
    prune.set_defaults(kind=kind)
    with_caches(prune)


def _serve(verb: Verb) -> None:
    """The verb that has one model behind the wrapper."""
    serve = verb(
        "serve", "serve:serve", "serve one model by OpenAI's API until Ctrl-C",
        "hpcbench serve tiny-vlm --port 8000; then, with OpenAI's SDK: "
        'OpenAI(base_url="http://127.0.0.1:8000/v1", api_key=KEY), KEY from the file that it prints',
    )  # fmt: skip
    serve.add_argument("model", help="name of a models/ document, or its YAML file")
    with_registry(serve)
    serve.add_argument("--port", type=int, help="TCP port besides; none: a Unix socket alone")
    serve.add_argument("--host", default="127.0.0.1", help="address for --port (%(default)s)")
    serve.add_argument(
        "--media-root", type=Path, metavar="DIR", help="folder whose images may be named as file://"
    )
    serve.add_argument(
        "--restarts", type=int, default=3, metavar="N",
        help="how often an engine that died is started again (%(default)s)",
    )  # fmt: skip
