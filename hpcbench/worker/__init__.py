"""The process of one array task: claim → load → drive → record → next, until nothing is left.

It runs on the host side of the node, where Slurm's tools and signals are, and keeps a wrapper with the
engine as its child, inside the image, reached through a Unix socket in a private folder. SIGTERM and USR2
(the time limit is near, the job is preempted) drain: what is in flight is answered and written, then the
worker ends; its shard can be taken up by any other. A kill -9 costs the answers in flight and no more.
"""

from hpcbench.worker.process import main

__all__ = ["main"]
