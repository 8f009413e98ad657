"""The origin of the figures: differences from the baseline, and inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hpcbench.comparison.table_rows import setting_text
from hpcbench.reporting.blocks import (
    Block,
    Code,
    Section,
    Table,
    Text,
)
from hpcbench.reporting.printed_tables import (
    metric_rows,
)
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections.shared import scores_in

MOST_MANIFEST = 60_000
"""Most characters of a manifest that is shown complete."""

MOST_DIFFERENCES = 200
"""Most differences of the configuration that are listed."""


def differences(tables: Tables) -> Section | None:
    found = tables["baseline"]
    if found is None:
        return None
    title = f"Configuration against the baseline {found['id']}"
    differences = found["differences"]
    if differences is None:
        text = f"No comparison with the baseline {found['id']}: {found['why']}."
        return Section("differences", title, (Text(text, "warn"),))
    if not differences:
        return Section(
            "differences",
            title,
            (Text("The two experiments differ in no setting that results depend on."),),
        )
    rows = tuple(
        (one["path"], setting_text(one["baseline"]), setting_text(one["experiment"]))
        for one in differences[:MOST_DIFFERENCES]
    )
    table = Table("Differences", ("path", "baseline", "here"), rows, texts=frozenset({1, 2}))
    blocks: list[Block] = [table]
    if len(differences) > MOST_DIFFERENCES:
        blocks.append(Text(f"{len(differences) - MOST_DIFFERENCES} more are not shown.", "note"))
    return Section("differences", title, tuple(blocks))


def provenance(tables: Tables) -> Section:
    rows = list(metric_rows(scores_in(tables)))
    signatures = sorted({(row.metric, row.signature, row.method) for row in rows if row.signature})
    manifest: Mapping[str, Any] = tables["manifest"]
    text = json.dumps(manifest, ensure_ascii=False, indent=2, sort_keys=True)
    title = "The whole manifest"
    if len(text) > MOST_MANIFEST:
        title = "The manifest without its longest parts (manifest.json has all)"
        small = {key: one for key, one in manifest.items() if len(json.dumps(one)) < 8000}
        text = json.dumps(small, ensure_ascii=False, indent=2, sort_keys=True)
    facts = Table(
        "Inputs of the figures", ("what", "which"),
        tuple((name, value) for name, value in tables["provenance"]["facts"]),
        texts=frozenset({1}),
    )  # fmt: skip
    metrics = Table(
        "Metrics and the methods of their intervals", ("metric", "signature", "interval"),
        tuple(signatures), texts=frozenset({1, 2}),
    )  # fmt: skip
    blocks = (
        Text(
            "This command runs the same experiment again, from any folder. The experiment's folder may be "
            "copied; it contains everything except the data:"
        ),
        Code(tables["provenance"]["reproduce"]),
        *((metrics,) if signatures else ()),
        facts,
        Code(text, title),
    )
    return Section("provenance", "How it was measured", blocks)
