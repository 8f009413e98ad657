"""An old name: processes of version 0.1 start a module of it; it goes with version 0.3."""
