"""Judges: run tasks whose model rates the answers of another run task.

    answers    which answers a judge's requests show
    labels     files of human labels, and which of them are about these answers
    summary    votes joined, corrected by the labels, and the biases measured

A judge is a run task like any other: its verdicts are answers, its shards are claimed, and its scores have
intervals. This room has only what is peculiar to it. See docs/judging.md.
"""
