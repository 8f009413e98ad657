"""Figures, parameters, files, prompts and responses at MLflow, Weights & Biases and Arize Phoenix.

`experiment_content` reads the data to send, a `Sink` (`mlflow`, `wandb`, `phoenix`) is one experiment at one
tracker, `feed` sends missing data, and `tracker_process` does it in a process that is ended when it takes too
long. A tracker that fails does not affect the experiment; `hpcbench track` tries again.
"""
