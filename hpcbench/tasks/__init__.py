"""Kinds of document work, each with its way to read answers; every module runs alone."""
