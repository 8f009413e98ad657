"""Results in a database, PostgreSQL or SQLite. The experiment's directory stays the truth.

    tables      the tables and their columns
    migrations  the tables of each version, for Alembic
    place       a connection: who answers, and whether its tables fit this version
    parts       an experiment as parts with stamps, each a frame of rows
    sync        sends the parts that the database lacks, a transaction each
    later       who sends what was left: the end of an experiment, and later commands

Nothing is only there: `hpcbench database sync` makes all rows again from the experiments' directories.
"""
