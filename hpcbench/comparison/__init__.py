"""Runs held against each other: candidates against a baseline, gates, A/B, their history."""
