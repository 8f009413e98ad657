"""Usage of a cluster by experiments."""
