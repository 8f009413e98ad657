"""hpcbench: vision-language models on document work, on Slurm clusters with Apptainer."""

__version__ = "0.1.0"
