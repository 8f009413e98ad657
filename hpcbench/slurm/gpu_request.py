"""How a cluster is asked for GPUs: the same words for sbatch and for the steps of a job."""

from __future__ import annotations

from hpcbench.schema.site import SlurmSite
from hpcbench.schema.work import JobResources


def gpu_options(
    slurm: SlurmSite, resources: JobResources, gpus: int, nodes: int = 1
) -> dict[str, str]:
    """The option of this cluster that requests GPUs, `gpus` on each node."""
    if not gpus:
        return {}
    gres = f"gpu:{resources.gpu_type}" if resources.gpu_type else slurm.gpu_gres
    if slurm.gpu_option == "gres":
        return {"gres": f"{gres}:{gpus}"}
    kind = gres.partition(":")[2]
    gpus *= nodes if slurm.gpu_option == "gpus" else 1  # that option counts those of the whole job
    return {slurm.gpu_option.replace("-", "_"): f"{kind}:{gpus}" if kind else str(gpus)}
