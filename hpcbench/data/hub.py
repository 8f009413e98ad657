"""`hf://ORGANISATION/NAME` and `hf://datasets/ORGANISATION/NAME`: found on this machine, never fetched.

Looked for as plain folders below the site's folders of models, then in the Hugging Face cache, laid out as
`models--ORGANISATION--NAME/snapshots/COMMIT` with the branch's commit in `refs/main`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hpcbench.errors import Problem, UserError


def find_in_hub(url: str, folders: Sequence[str] = (), revision: str | None = None) -> Path:
    """The folder of a model or dataset.

    Args:
        url: `hf://…`.
        folders: where plain copies are kept, as ORGANISATION/NAME.
        revision: commit; none: what `refs/main` of the cache says.

    Raises:
        UserError: it is not on this machine.
    """
    name = url.removeprefix("hf://").strip("/")
    kind = "dataset" if name.startswith("datasets/") else "model"
    for folder in folders:
        if (Path(folder) / name).is_dir():
            return Path(folder) / name
    cache = _cache() / f"{kind}s--{name.removeprefix('datasets/').replace('/', '--')}"
    if revision is None:
        main = cache / "refs" / "main"
        revision = main.read_text(encoding="utf-8").strip() if main.is_file() else "none"
    snapshot = cache / "snapshots" / revision
    if snapshot.is_dir():
        return snapshot
    bare = name.removeprefix("datasets/")
    option = " --repo-type dataset" if kind == "dataset" else ""
    raise UserError(
        Problem(
            f"{kind} {url} is not on this machine",
            remedy=f"`hf download {bare}{option}` where there is network, or put it below a folder of the "
            "site profile's `models`",
        )
    )


def _cache() -> Path:
    environ = os.environ
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"])
    home = environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"
