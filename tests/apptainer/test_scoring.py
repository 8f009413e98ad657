"""Metrics that score inside a SIF, asked for on the login node: what they see, and what they give back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

DEMO = Path(__file__).parents[2] / "examples/demo/data/vqa.jsonl"

WATCHER = """
import json, os, pathlib, socket, sys
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Parts:
    numerator: float
    denominator: float


def _refused(action):
    try:
        action()
    except OSError:
        return True
    return False


@dataclass(frozen=True)
class Watcher:
    api: ClassVar[int] = 1
    name: ClassVar[str] = "watcher"
    higher_is_better: ClassVar[bool] = True
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple] = (0.0, 1.0)
    home: str = ""
    port: int = 0
    together: str = ""

    def score(self, prediction, references):
        asked = pathlib.Path(sys.argv[1])
        found = {
            "in an image": pathlib.Path("/.singularity.d").is_dir(),
            "answers are read-only": _refused((asked / "samples.jsonl").open("a").close)
            if os.access(asked / "samples.jsonl", os.W_OK) else True,
            "no network": _refused(lambda: socket.create_connection(("127.0.0.1", self.port), 2)),
            "no home": not os.path.exists(self.home),
            "no variables": "MY_TOKEN" not in os.environ,
            "metrics of its image, and no others":
                [one["name"] for one in json.loads((asked / "metrics.json").read_text())["metrics"]]
                == self.together.split(","),
        }
        wrong = [name for name, well in found.items() if not well]
        if wrong:
            raise ValueError(f"not so: {wrong}")
        return Parts(1.0, 1.0)

    def aggregate(self, parts):
        return sum(one.numerator for one in parts) / len(parts)

    @property
    def signature(self):
        return "watcher|v1"


class Broken(Watcher):
    import a_module_that_no_image_has
"""


def answers(folder: Path) -> Path:
    """Answers to the demo's questions: right, nearly right and wrong ones."""
    path = folder / "answers.jsonl"
    lines = []
    for number, line in enumerate(DEMO.read_text(encoding="utf-8").splitlines()):
        sample = json.loads(line)
        right = sample["references"][0]
        text = [right, right.lower()[:-1], "другое", f" {right}!"][number % 4]
        lines.append(json.dumps({"id": sample["id"], "text": text}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def scorer(slurm_user: User, image: str) -> User:
    """A user with metrics that score in the engine image, which has none of what they import."""
    user, folder = slurm_user, slurm_user.folder / "watcher"
    folder.mkdir()
    (folder / "watcher.py").write_text(WATCHER.partition("class Broken")[0])
    (folder / "broken.py").write_text(WATCHER)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "watcher"\nversion = "1.0"\n'
        '[project.entry-points."hpcbench.metrics"]\nwatcher = "watcher:Watcher"\n'
        'broken = "broken:Broken"\n'
        '[tool.hatch.build.targets.wheel]\nonly-include = ["watcher.py", "broken.py"]\n'
    )
    user.environment |= {"RUN_MODE": "dev", "MY_TOKEN": "s3cret"}
    user.write("packages/watcher.yaml", {
        "name": "watcher", "provides": {"metrics": ["watcher", "broken"]},
        "source": {"type": "local", "path": str(folder), "editable": False},
    })  # fmt: skip
    port = int(image.removeprefix("docker://").partition("/")[0].rpartition(":")[2])
    sees = {"home": str(user.home), "port": port, "together": "anls_there,watcher"}
    (sif,) = user.json("images", "build", image)
    for name, fields in {
        "watcher": {"plugin": "watcher", "options": sees},
        "broken": {"plugin": "broken"},
        "anls_there": {"plugin": "anls"},
        "bleu_there": {"plugin": "bleu", "image": sif["path"]},  # the same Python, by another image
    }.items():
        user.write(f"metrics/{name}.yaml", {"name": name, "image": image, **fields})
    return user


def score(user: User, *metrics: str) -> Any:
    words = ["score", answers(user.folder), "--dataset", "demo_vqa", "--ml-task", "vqa"]
    words += ["--metrics", ",".join(metrics), "--by", "doc_type", "--registry", user.registry]
    return user.hpcbench(*words, "--json")


def test_the_demo_is_scored_in_two_images_as_on_the_host_without_a_network(scorer: User) -> None:
    """A container an image; each sees its own metrics, and the answers read-only."""
    done = score(scorer, "anls", "anls_there", "bleu", "bleu_there", "watcher")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    by: dict[str, list[Any]] = {}
    for row in rows:
        by.setdefault(row["metric"], []).append({**row, "metric": ""})
    assert by["anls_there"] == by["anls"]
    assert by["bleu_there"] == by["bleu"]
    assert 0 < by["anls"][0]["value"] < 1
    assert [row["value"] for row in by["watcher"]] == [1.0] * len(by["anls"]), by["watcher"]
    assert not any(row["faults"] for row in rows)


def test_an_image_without_the_module_or_without_python_is_one_line(scorer: User, lab: Lab) -> None:
    done = score(scorer, "anls", "broken")
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "metrics/broken.yaml:" in last
    assert "metric 'broken' cannot score in image 'docker://127.0.0.1:" in last
    assert "No module named 'a_module_that_no_image_has'" in last
    scorer.write(
        "metrics/bare.yaml", {"name": "bare", "plugin": "anls", "image": "@".join(lab.base_image())}
    )
    done = score(scorer, "anls", "bare")
    assert done.returncode == 3, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("hpcbench: metric 'bare' scores in image 'docker://127.0.0.1:")
    assert "Python of" in last
