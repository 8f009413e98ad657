"""Models that work in turns with tools: the loop, its limits, the tools, and the record of each turn."""
