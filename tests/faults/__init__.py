"""Faults of engines, files and commands, with an engine that misbehaves as it is told."""
