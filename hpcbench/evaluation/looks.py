"""`python -m hpcbench.evaluation.looks`, which version 0.1 starts: `hpcbench.comparison.interim`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("hpcbench.comparison.interim", run_name="__main__", alter_sys=True)
