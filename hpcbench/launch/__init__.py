"""Old names of modules that jobs queued by version 0.1 start; they go with version 0.3."""
