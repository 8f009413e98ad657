"""The types that pass between the rooms: documents (YAML), plans (resolved), records (written)."""
