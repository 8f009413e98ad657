"""The types that pass between the rooms: definitions (YAML), plans (resolved), records (written)."""
