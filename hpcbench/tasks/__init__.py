"""Kinds of document work: how each reads its answers; every module runs alone."""
