"""hpcbench: vision-language models on document work, on Slurm clusters with Apptainer."""

__version__ = "0.1.0"

DISTRIBUTION = "hpcbench-vlm"
"""Name under which it is installed. The command refuses a package `hpcbench` that does not say this."""
