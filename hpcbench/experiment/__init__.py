"""An experiment's directory: the only truth, crash-safe on a shared file system.

`layout` knows every path, `files` writes so that every write can be interrupted, `claims` shares shards
among workers, `state` reads how far all of it is.
"""
