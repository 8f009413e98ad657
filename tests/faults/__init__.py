"""Faults of engines, files and commands, with an engine that misbehaves on command."""
