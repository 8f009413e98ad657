"""A real one-machine Slurm cluster and a real Apptainer, for tests and developers (README.md)."""

from .lab import Job, Lab
from .system import LabError

__all__ = ["Job", "Lab", "LabError"]
