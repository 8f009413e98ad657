"""Contents of the next round of jobs, and the division of a round's workers."""
