"""An experiment's directory: the only source of its state, crash-safe on a shared file system.

`layout` knows every path, `claims` shares shards among workers, `events` is the log, `control` holds requests
to pause or stop, `view` reads all of them as typed records. Writes use `hpcbench.files`.
"""
