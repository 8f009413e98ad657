"""`hf://ORGANISATION/NAME[@REVISION]` and `hf://datasets/…`: found on this machine, never fetched.

Looked for as plain folders below the site's folders of models, then in the Hugging Face cache, laid out as
`models--ORGANISATION--NAME/snapshots/COMMIT` with the commits of branches and tags in `refs/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.errors import Problem, UserError

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that never changes; any other is a branch or a tag, which may."""

WEIGHTS = ("*.safetensors", "*.gguf", "*model*.bin")
"""Files of which one is a whole model, unless its name says that it is one of several."""

_SHARD = re.compile(r"-\d+-of-\d+\.")

_NAME = re.compile(r"(datasets/)?(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\w[\w./-]*))?")


def repository(url: str) -> tuple[str, str, str | None]:
    """`models` or `datasets`, the name, and the revision, if one is told.

    Raises:
        UserError: it names none.
    """
    found = _NAME.fullmatch(url.removeprefix("hf://").strip("/"))
    if found is None or found[2] == "datasets":
        form = "hf://ORGANISATION/NAME, hf://datasets/ORGANISATION/NAME, either with @REVISION"
        raise UserError(Problem("names no repository of the hub", url, remedy=form))
    return "datasets" if found[1] else "models", found[2], found[3]


def find_in_hub(url: str, folders: Sequence[str] = ()) -> Path:
    """The folder of a model or dataset.

    Args:
        url: `hf://…[@REVISION]`; without a revision, or where that is a branch or tag, what `refs/` of the
            cache says.
        folders: where plain copies are kept, as ORGANISATION/NAME.

    Raises:
        UserError: it is not on this machine, or not whole.
    """
    kind, name, revision = repository(url)
    for folder in folders:
        plain = Path(folder) / (name if kind == "models" else f"datasets/{name}")
        if plain.is_dir():
            return plain
    cache = _cache() / f"{kind}--{name.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    snapshot = cache / "snapshots" / (commit or "none")
    what, or_else = f"{kind[:-1]} {url} is not on this machine", ""
    if snapshot.is_dir():
        if not (lacking := next(_lacking(snapshot, cache), None)):
            return snapshot
        what = f"{snapshot} is not whole, a download broke off: see {lacking}"
        if lacking.suffix == ".incomplete":
            or_else = f"; or remove {lacking}, if nobody is at it any more"
    options = " --repo-type dataset" if kind == "datasets" else ""
    options += f" --revision {revision}" if revision else ""
    raise UserError(
        Problem(
            what,
            remedy=f"`hf download {name}{options}` where there is network, or put it below a folder of the "
            f"site profile's `models`{or_else}",
        )
    )


def _lacking(snapshot: Path, cache: Path) -> Iterator[Path]:
    """What shows that a download of a snapshot broke off: it is filled file by file.

    An index may have come without its shards, for weights in another form: then it says nothing.
    """
    for path in snapshot.rglob("*"):
        if not path.exists():  # a link to what is not there
            yield path
    indexed = [*_indexed(snapshot)]
    missing = [[shard for shard in shards if not shard.exists()] for shards in indexed]
    weights = any(not _SHARD.search(path.name) for name in WEIGHTS for path in snapshot.glob(name))
    begun = [some for shards, some in zip(indexed, missing, strict=True) if some != shards]
    for some in begun or ([] if weights else missing):
        yield from some
    whole = [] in begun or (weights and not indexed)
    if not whole:  # nothing tells which files there should be
        for path in (cache / "blobs").glob("*.incomplete"):  # of BLOB[.PROCESS].incomplete
            if not path.with_name(path.name.partition(".")[0]).exists():
                yield path


def _indexed(snapshot: Path) -> Iterator[list[Path]]:
    """The shards that each index tells."""
    for index in snapshot.glob("*.index.json"):
        try:
            shards = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
            yield [snapshot / shard for shard in shards]
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue  # whoever loads it will say so


def _cache() -> Path:
    environ = os.environ
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"])
    home = environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"
