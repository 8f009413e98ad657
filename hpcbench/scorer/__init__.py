"""Scores of single samples by a metric: the same code on the host and inside an image.

`one` scores a sample. `python -m hpcbench.scorer ASKED FOLDER` scores a file of samples, in an image
or in a virtual environment that the host names; `exchange` is the form of the files between the two. The room
imports no part of hpcbench that an image may lack a package for.
"""
