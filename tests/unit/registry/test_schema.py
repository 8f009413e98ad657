"""Schemas and reference pages say what the models say, and the shipped definitions meet them."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml

from hpcbench.registry.catalog import RunMode
from hpcbench.registry.resolve import check_registries
from hpcbench.schema.describe import field_docs, json_schema, reference
from hpcbench.schema.kinds import KINDS
from tests.conftest import ROOT

SHIPPED = sorted((ROOT / "registries").glob("*/**/*.yaml"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_schemas_are_those_of_the_models(kind: str) -> None:
    shipped = json.loads((ROOT / f"registries/schemas/{kind}.json").read_text())
    assert shipped == json_schema(kind), "run: hpcbench schema --out registries/schemas"


def test_the_page_of_all_fields_is_that_of_the_models() -> None:
    page = (ROOT / "docs/definitions.md").read_text()
    assert page == reference(), "run: hpcbench schema --markdown > docs/definitions.md"
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == [], "every key is explained"
    cells = [re.split(r"(?<!\\) \| ", row) for row in rows]
    assert [row[0] for row in cells if not row[2]] == [], "every key has a default, or is required"
    types = " ".join(row[1] for row in cells)
    headings = {one.lower() for one in re.findall(r"^#+ (\w+)/?$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", types)) <= headings
    assert re.findall(r"\b[A-Z]\w+\b(?!\])", re.sub(r"`[^`]*`", "", types)) == [], (
        "no table of a part"
    )


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_every_field_is_explained(model: type) -> None:
    docs = field_docs(model.__name__)
    assert [name for name in model.model_fields if not docs.get(name)] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_definitions_keep_to_their_schema_and_point_editors_at_it(kind: str) -> None:
    schema = json_schema(kind)
    validator = jsonschema.validators.validator_for(schema)(schema)
    for path in SHIPPED:
        if path.relative_to(ROOT / "registries").parts[0] == kind:
            text = path.read_text()
            head, _, where = text.splitlines()[0].partition("$schema=")
            assert head == "# yaml-language-server: ", path
            assert (path.parent / where).resolve() == ROOT / f"registries/schemas/{kind}.json"
            faults = [one.message for one in validator.iter_errors(yaml.safe_load(text))]
            assert faults == [], path


@pytest.mark.parametrize("mode", ["prod", "dev"])
def test_all_shipped_definitions_are_right(mode: RunMode) -> None:
    assert check_registries(mode=mode)[0] == len(SHIPPED)


@pytest.mark.long
def test_no_digest_or_revision_is_invented() -> None:
    """Models' are filled in by `models verify`; the tiny model's files ship here. An image's digest has its
    evidence in recipes/images/README.md."""
    evidence = (ROOT / "recipes/images/README.md").read_text()
    for path in SHIPPED:
        data = yaml.safe_load(path.read_text())
        assert data.get("digest", "") in evidence, path
        assert "revision" not in data, path
        assert data.get("content_hash") is None or "demo" in data["source"], path
