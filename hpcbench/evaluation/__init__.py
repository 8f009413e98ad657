"""Answers become scores, scores become tables: read → score → aggregate, per run task.

The table has every usable sample of the run task, answered or not: `coverage` is ok ÷ (asked + skipped),
and a run task without a scored sample has no value (`experiment/ending.py`). The run task's `on_failed` says
how a sample without an answer counts; its `on_invalid` says how an answer without a value counts. A table
with such samples also gives the value under the other policy. An exception or a timeout of a metric is a
fault of that sample: it is counted and reported, and gives no score.

Samples pass in batches (`scoring`) into columns on the disk (`scores`), and every table is computed from
these columns (`aggregate`, `summary`). `metrics.json` does not depend on time or place, unless the plan names
metrics of resources (`resources`): the same answers give the same bytes, whatever the size of shards and
batches. `speed`'s figures of times and tokens go to `performance.json`.
"""
