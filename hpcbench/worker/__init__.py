"""The process of one array task: claim → load → drive → record → next, until no work is left.

It runs on the host side of the node, where Slurm's tools and signals are. Its child is a wrapper with the
engine, inside the image, reached through a Unix socket in a private folder. SIGTERM and USR2 (the time limit
is near, the job is preempted) drain: requests in flight are answered and written, then the worker ends; any
other worker can continue its shard. A kill -9 only costs the answers in flight.
"""

from hpcbench.worker.process import main

__all__ = ["main"]
