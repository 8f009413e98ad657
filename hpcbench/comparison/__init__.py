"""Runs compared: candidates with a baseline, gates, A/B, history over months."""
