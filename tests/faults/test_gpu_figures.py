"""Memory, energy and cost of GPUs as metrics, from the monitor's readings to report, gate, score and compare.

The GPU is pretended (`tests/fake_nvml.py`); worker, wrapper, engine and monitor are real processes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fake_nvml import GIB
from tests.faults.conftest import Bench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

ENGINE_GIB, WATTS, PRICE = 3, 300, 2.5

DRIVER = f"""
import sys
from pathlib import Path
from tests.fake_nvml import GIB, FakeGpu, FakeNvml


class Gpu(FakeGpu):
    '''Each of our engines holds {ENGINE_GIB} GiB.'''

    @property
    def processes(self):
        found = {{}}
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"hpcbench_scripted" in file.read_bytes() and SCRIPT in file.read_bytes():
                    found[int(file.parent.name)] = {ENGINE_GIB} * GIB
            except OSError:
                pass
        return found

    @processes.setter
    def processes(self, value):
        pass

    used = property(lambda self: GIB + sum(self.processes.values()), lambda self, value: None)


sys.modules["pynvml"] = FakeNvml([Gpu("GPU-0", milliwatts={WATTS * 1000}, cpus=None)])
"""
"""Loaded by each process of Python at its start."""

MORE = {"stages": ["inference", "evaluation", "reporting"], "shard_size": 40}

METRICS = ["exact_match", "peak_gpu_memory", "energy", "cost", "documents_per_hour"]


def test_gpu_figures_go_from_the_monitor_to_every_verb(bench: Bench) -> None:
    shim = bench.folder / "driver"
    shim.mkdir()
    script = f"SCRIPT = {str(bench.script_file).encode()!r}\n"
    (shim / "sitecustomize.py").write_text(script + DRIVER)
    bench.environ["PYTHONPATH"] = f"{shim}:{ROOT}"
    bench.write("config/hpcbench/sites/default.yaml",
                {"name": "default", "gpu_hour_price": PRICE, "currency": "EUR"})  # fmt: skip
    bench.model("scripted", gpus=1)
    bench.script(answer_ms=[60, 90])
    plan = bench.plan({"metrics": METRICS, "concurrency": 4}, **MORE,
                      reports=["markdown"])  # fmt: skip
    ids = []
    for _ in range(2):
        trial = bench.submit(plan, "--fresh")
        trial.wait()
        ids.append(trial.id)
        table = json.loads((trial.path / "metrics.json").read_text())["run_tasks"]["numbers"]
        values = {name: one and one["value"] for name, one in table["metrics"].items()}
        assert values["peak_gpu_memory"] == ENGINE_GIB, table["measured"]
        speed = json.loads((trial.path / "performance.json").read_text())["run_tasks"]["numbers"]
        assert speed["memory"]["gpu_peak"] == ENGINE_GIB * GIB
        assert speed["memory"]["gpu_peak_source"] == "processes"
        # 10 documents at WATTS for less than a minute, and longer than the answers of four at once took.
        assert WATTS * 0.3 / 3600 * 100 < values["energy"] < WATTS * 60 / 3600 * 100
        assert values["cost"] == pytest.approx(PRICE * 1000 / values["documents_per_hour"])
        assert table["measured"]["cost"]["unit"] == "EUR per 1,000 documents"

    report = (trial.path / "report/report.md").read_text()
    for name in (
        "peak_gpu_memory, GiB",
        "energy, Wh per 1,000 documents",
        "cost, EUR per 1,000 documents",
    ):
        assert name in report
    out, _ = bench.run("score", ids[1], "--metrics", "peak_gpu_memory,energy,cost", "--json")
    scored = {row["metric"]: row["value"] for row in json.loads(out)["rows"]}
    assert scored == {name: values[name] for name in ("peak_gpu_memory", "energy", "cost")}
    wanted = [word for name in scored for word in ("--metric", name)]
    out, _ = bench.run("compare", *ids, *wanted, "--json")
    compared = {row["metric"]: row for row in json.loads(out)["candidates"][0]["compared"]}
    assert compared.keys() == scored.keys()
    for name, row in compared.items():
        assert row["comparison"]["candidate"] == values[name]
    limits = {
        "peak_gpu_memory": {"relative": 0.1},
        "energy": {"absolute": 100},
        "cost": {"absolute": 1},
    }
    policy = bench.write("gate.yaml", {"name": "frugal", "metrics": limits})
    words = ("gate", ids[1], "--baseline", ids[0], "--policy", policy, "--json")
    checks = {one["what"]: one for one in json.loads(bench.run(*words, code=5)[0])["checks"]}
    assert checks["peak_gpu_memory"]["verdict"] == "pass"
    for name in ("energy", "cost"):  # one run a side shows no spread
        assert checks[name]["why"].endswith("the check cannot decide: repeat the run")

    first = bench.plan({"metrics": METRICS}, name="A", **MORE)
    second = bench.plan({"metrics": METRICS, "generation": {"max_tokens": 8}}, name="B", **MORE)
    words = ("ab", first, second, "--limit", 20, "--registry", bench.folder / "registry")
    out, _ = bench.run(*words, "--wait", "--no-early-stop")
    rows = {line.lstrip("* ").split()[0]: line for line in out.splitlines() if line.strip()}
    figures = {"exact_match", "coverage", "completion_tokens", "answers_per_s", "gpu_peak", "cost"}
    assert figures <= rows.keys(), out
    assert "EUR per 1,000 documents" in rows["cost"]
