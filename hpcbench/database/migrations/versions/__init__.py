"""The files of the versions. A new one is `vNNNN_what.py`, with `revision` and `down_revision`."""
