"""Faults over a real network file system: GlusterFS, mounted twice as two nodes of a busy site have it."""
