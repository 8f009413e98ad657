"""Figures, parameters, files, prompts and responses at MLflow, Weights & Biases and Arize Phoenix.

`content` reads what there is to tell, a `Sink` (`mlflow`, `wandb`, `phoenix`) is one experiment at one
tracker, `sending` brings there what is not there yet, and `apart` does it in a process that is ended when it
takes too long. A tracker that fails costs the experiment nothing; `hpcbench track` tries again.
"""
