"""Where the figures come from: what differs from the baseline, what they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.reporting.blocks import (
    Block,
    Code,
    Section,
    Table,
    Text,
)
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.tables import (
    metric_rows,
)

MOST_MANIFEST = 60_000
"""Characters of the manifest up to which it is shown as a whole."""

MOST_DIFFERENCES = 200
"""Differences of the configuration that are listed."""


def differences(tables: Tables) -> Section | None:
    found = tables["baseline"]
    if found is None:
        return None
    title = f"Configuration against the baseline {found['id']}"
    differences = found["differences"]
    if differences is None:
        text = f"The baseline {found['id']} was not compared with: {found['why']}."
        return Section("differences", title, (Text(text, "warn"),))
    if not differences:
        return Section("differences", title, (Text("Nothing differs that results depend on."),))
    rows = tuple(
        (one["path"], _json(one["baseline"]), _json(one["experiment"]))
        for one in differences[:MOST_DIFFERENCES]
    )
    table = Table("What differs", ("path", "baseline", "here"), rows, texts=frozenset({1, 2}))
    blocks: list[Block] = [table]
    if len(differences) > MOST_DIFFERENCES:
        blocks.append(Text(f"{len(differences) - MOST_DIFFERENCES} more are not shown.", "note"))
    return Section("differences", title, tuple(blocks))


def _json(value: Any) -> str:
    if value is None:
        return form.DASH
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def provenance(tables: Tables) -> Section:
    rows = list(metric_rows(tables["metrics"]))
    signatures = sorted({(row.metric, row.signature, row.method) for row in rows if row.signature})
    manifest: Mapping[str, Any] = tables["manifest"]
    text = json.dumps(manifest, ensure_ascii=False, indent=2, sort_keys=True)
    title = "The whole manifest"
    if len(text) > MOST_MANIFEST:
        title = "The manifest without its longest parts, which manifest.json holds"
        small = {key: one for key, one in manifest.items() if len(json.dumps(one)) < 8000}
        text = json.dumps(small, ensure_ascii=False, indent=2, sort_keys=True)
    facts = Table(
        "What the figures depend on", ("what", "which"),
        tuple((name, value) for name, value in tables["provenance"]["facts"]),
        texts=frozenset({1}),
    )  # fmt: skip
    metrics = Table(
        "Metrics and how their intervals were found", ("metric", "signature", "interval"),
        tuple(signatures), texts=frozenset({1, 2}),
    )  # fmt: skip
    blocks = (
        Text(
            "The same again, from any folder; the experiment's folder may be copied, and holds all but the "
            "data:"
        ),
        Code(tables["provenance"]["reproduce"]),
        *((metrics,) if signatures else ()),
        facts,
        Code(text, title),
    )
    return Section("provenance", "How it was measured", blocks)
