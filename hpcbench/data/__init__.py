"""Datasets as they lie on disk: iterators that give samples, hashes that say which bytes they were."""
