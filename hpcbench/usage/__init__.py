"""What experiments took of a cluster."""
