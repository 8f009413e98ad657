"""From a plan to the jobs that run it."""
