"""Files that survive a kill at any moment and many readers and writers: each primitive is here once."""
