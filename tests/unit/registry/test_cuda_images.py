"""Images for older drivers: the site's `cuda` chooses the one that its nodes can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.image import Image

DIGEST = "sha256:" + "0" * 64
FILES = {
    "images/new.yaml": "name: new\nreference: docker://a/new:1\ndigest: DIGEST\n"
    'engines: [vllm]\ncuda: "13.0"\nfor_older_drivers: old\n',
    "images/old.yaml": "name: old\nreference: docker://a/old:1\ndigest: DIGEST\n"
    'engines: [vllm]\ncuda: "12.9"\n',
    "models/m.yaml": "name: m\nsource: ../weights\nengine: vllm\nimage: new\ngpus: 1\n",
}


def image(folder: Path, container: str, **changed: str) -> str | None:
    """Reference of the model's image on a site with this `container`."""
    site = f"name: here\nexecutor: local\ncontainer: {{{container}}}\n"
    for name, text in {**FILES, "sites/here.yaml": site, **changed}.items():
        file = folder / "registries" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("DIGEST", DIGEST))
    plan = folder / "plan.yaml"
    plan.write_text(
        "name: p\nsite: here\nrun_tasks:\n"
        "  - {name: a, ml_task: vqa, model: m, dataset: demo_vqa}\n"
    )
    return load_plan(plan, [folder / "registries"]).run_tasks[0].model.image


@pytest.mark.parametrize(
    ("container", "name"),
    [
        ('cuda: "13.1"', "new"),
        ('cuda: "12.4"', "old"),
        ('cuda: "12.4", gpu_maker: amd', "new"),
        ("", "new"),
    ],
    ids=["a new driver", "an older driver", "no NVIDIA GPU", "an unknown driver"],
)
def test_the_sites_driver_chooses_the_image(tmp_path: Path, container: str, name: str) -> None:
    assert f"a/{name}" in str(image(tmp_path, container))


def test_a_model_that_asks_for_forward_compatibility_gets_the_newer_image(tmp_path: Path) -> None:
    model = FILES["models/m.yaml"] + 'env: {VLLM_ENABLE_CUDA_COMPATIBILITY: "1"}\n'
    assert "a/new" in str(image(tmp_path, 'cuda: "12.4"', **{"models/m.yaml": model}))


def test_an_image_without_a_substitute_stays(tmp_path: Path) -> None:
    """`submit` refuses it with the remedy, before it downloads anything."""
    new = FILES["images/new.yaml"].replace("for_older_drivers: old\n", "")
    assert "a/new" in str(image(tmp_path, 'cuda: "12.4"', **{"images/new.yaml": new}))


def test_an_unknown_substitute_and_a_circle_are_one_line(tmp_path: Path) -> None:
    wrong = FILES["images/new.yaml"].replace("drivers: old", "drivers: odl")
    with pytest.raises(UserError, match="unknown image 'odl'"):
        image(tmp_path, 'cuda: "12.4"', **{"images/new.yaml": wrong})
    circle = FILES["images/new.yaml"].replace("drivers: old", "drivers: new")
    with pytest.raises(UserError, match="images replace each other: new → new"):
        image(tmp_path, 'cuda: "12.4"', **{"images/new.yaml": circle})


def test_the_shipped_vllm_has_an_image_for_cuda_12() -> None:
    catalog = Catalog()
    newer = catalog.get(Image, "vllm-openai")
    assert newer.for_older_drivers is not None
    older = catalog.get(Image, newer.for_older_drivers)
    assert (older.cuda or "").startswith("12.")
    assert (older.engines, bool(older.digest)) == (newer.engines, True)
