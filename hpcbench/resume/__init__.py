"""What a further round of jobs holds, and how the workers of a round are shared."""
