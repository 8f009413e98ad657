"""Datasets on disk: iterators that yield samples, hashes that identify the bytes, transfers and caches."""
