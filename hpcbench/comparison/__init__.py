"""Comparisons of runs: candidates with a baseline, gates, A/B, history over months."""
