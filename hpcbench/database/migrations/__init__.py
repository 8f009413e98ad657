"""Versions of the tables, for Alembic: a file each in `versions/`, unchanged once it is released."""
