"""The network between nodes, as an engine over several of them meets it: a measured all-reduce, in words.

`measured` submits one job of several nodes and waits for it. On the job's first node, `main` starts
`wrapper/all_reduce.py` once on each node, as `worker/engine_nodes.py` starts the ranks of an engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpcbench import environments, plugins, slurm
from hpcbench.environments.orphans import scratch
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment, home
from hpcbench.files.atomic import read_json, write_json
from hpcbench.number_format import many
from hpcbench.schema.plan import Group
from hpcbench.submit.sbatch import clean_environment, parameters, script
from hpcbench.worker.ranks import nodes_of_job, step_command
from hpcbench.worker.rendezvous import address_of, held_port, own_address

LONGEST_SECONDS = 240
"""Longest time of the ranks, most of which imports PyTorch from a busy file system."""

LAYERS = 80
"""Layers of the model in the example: those of common models of 70 billion parameters."""

SLOW_LATENCY_S, SLOW_BUS = 50e-6, 5e9
"""From here on the network is called slow: InfiniBand has some 10 to 30 µs and 10 to 50 GB/s."""


@dataclass(frozen=True, slots=True)
class Link:
    """A measured all-reduce between nodes."""

    nodes: tuple[str, ...]
    """The nodes."""
    backend: str
    """`nccl`: one GPU of each node; `gloo`: their CPUs."""
    interface: str
    """Network interface of the first node; empty: not known."""
    latency_s: float
    """Median seconds of an all-reduce of 4 bytes."""
    bus_bytes_s: float
    """Bandwidth of the bus, bytes per second: see `wrapper/all_reduce.py`."""

    def described(self) -> Iterator[str]:
        """The figures, what they mean for a model over these nodes, and what to do if they are slow."""
        over = f" over {self.interface}" if self.interface else ""
        latency, bus = self.latency_s * 1e6, self.bus_bytes_s / 1e9
        yield (
            f"all-reduce by {self.backend} between {' and '.join(self.nodes)}{over}: {latency:.0f} µs for "
            f"4 bytes, {bus:.3g} GB/s for large arrays"
        )
        # Two all-reduces in each layer: after attention, and after the feed-forward part (Megatron-LM).
        token = 2 * LAYERS * self.latency_s * 1e3
        yield (
            f"split by `tensor` over these nodes, a model of {LAYERS} layers waits at least {token:.2g} ms "
            "for the network with each token; split by `pipeline`, it waits for each part once"
        )
        if self.backend == "gloo":
            yield (
                "the figures are those of CPUs, as PyTorch had no GPU in this job: the network itself may be "
                "faster; measure it in a job with GPUs"
            )
            return
        slow = [
            word
            for word, bad in (
                ("latency", self.latency_s > SLOW_LATENCY_S),
                ("bandwidth", self.bus_bytes_s < SLOW_BUS),
            )
            if bad
        ]
        if slow:
            yield (
                f"slow: the {' and the '.join(slow)}, compared with InfiniBand (30 µs, 10 GB/s or better); "
                "set `slurm.interface` to the fast network, or split models over nodes by `pipeline`"
            )
        else:
            yield "the network is as fast as InfiniBand"


def measured(experiment: Experiment, nodes: int, say: Callable[[str], object]) -> Link:
    """Measure the all-reduce between nodes, in a job with the environment of an experiment's first group.

    Args:
        experiment: an experiment whose environment is prepared.
        nodes: number of nodes.
        say: receives a line when the job is submitted.

    Raises:
        EnvironmentFault: Slurm refuses the job, or it measured nothing.
    """
    group, resolved = _group(experiment, nodes), experiment.resolved
    name = f"hpcbench:link:{experiment.id}"
    options = parameters(resolved, group.resources, group.gpus, name, group=group)
    words = [sys.executable, "-u", "-m", "hpcbench.site.link", str(experiment.path), str(nodes)]
    folder = experiment.path / "jobs"
    batch = script(f"exec {shlex.join(words)}", folder, options)
    with clean_environment():
        waiting = subprocess.Popen(
            ["sbatch", "--parsable", "--wait"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert waiting.stdin and waiting.stdout and waiting.stderr
    with contextlib.suppress(OSError):  # it has ended: its error says why
        waiting.stdin.write(batch)
        waiting.stdin.close()
    job = waiting.stdout.readline().strip().partition(";")[0]
    try:
        if job:
            say(f"job {job} measures the all-reduce between {many(nodes, 'node')}")
        refused = waiting.stderr.read().strip()
        waiting.wait()
    except BaseException:
        waiting.kill()
        if job:
            slurm.cancel([job])
        raise
    try:
        found = read_json(_result(experiment))
        _result(experiment).unlink()
    except (OSError, ValueError):
        logs = sorted(folder.glob(f"{job}*")) if job else []
        where = f"see {logs[-1]}" if logs else "see `sinfo`, and the site profile's partition"
        what = f"no all-reduce between {many(nodes, 'node')} was measured"
        raise EnvironmentFault(f"{what}: {refused}" if refused else what, where) from None
    if "failed" in found:
        raise EnvironmentFault(
            f"the all-reduce between nodes failed: {found['failed']}",
            "set `slurm.interface` in the site profile, or check the environment's PyTorch",
        )
    return Link(**{**found, "nodes": tuple(found["nodes"])})


def _result(experiment: Experiment) -> Path:
    return home(experiment.resolved.site) / f"doctor-link.{experiment.id}"


def _group(experiment: Experiment, nodes: int) -> Group:
    """The experiment's first group as one worker on several nodes."""
    return replace(experiment.work.groups[0], nodes=nodes, workers=1, throttle=1, replicas=1)


def main(argv: Sequence[str]) -> None:
    """On the first node of the job: run all ranks, and write the result."""
    experiment = Experiment(Path(argv[0]))
    try:
        found = asdict(_ranks(experiment, _group(experiment, int(argv[1]))))
    except EnvironmentFault as fault:
        found = {"failed": fault.message}
    write_json(_result(experiment), found)


def _ranks(experiment: Experiment, group: Group) -> Link:
    site, nodes = experiment.resolved.site, nodes_of_job()
    environment = plugins.Environment(**experiment.manifest.environments[group.environment])
    address = own_address(site.slurm.interface, address_of(nodes[1]))
    with held_port(address, scratch(site.scratch)) as port:
        rest = [str(len(nodes)), address, str(port), site.slurm.interface or ""]
        running = []
        for rank, node in enumerate(nodes):
            words = ["python", "-m", "hpcbench.wrapper.all_reduce", str(rank), *rest]
            command = environments.wrap(environment, words, [], {}, group.gpus, site.container)
            running.append(
                subprocess.Popen(
                    [*step_command(site, group, node), *command.argv],
                    env={**os.environ, **command.env},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )  # fmt: skip
            )
        said = []
        try:
            said = [one.communicate(timeout=LONGEST_SECONDS) for one in running]
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(
                f"the ranks did not meet at {address}:{port} within {LONGEST_SECONDS} s"
            ) from None
        finally:
            for one in running:
                one.kill()
    for rank, (process, (_, errors)) in enumerate(zip(running, said, strict=True)):
        if process.returncode:
            last = (errors.strip().splitlines() or ["it wrote nothing"])[-1]
            raise EnvironmentFault(f"rank {rank} on {nodes[rank]}: {last[:300]}")
    return Link(tuple(nodes), **json.loads(said[0][0].strip().splitlines()[-1]))


if __name__ == "__main__":
    main(sys.argv[1:])
