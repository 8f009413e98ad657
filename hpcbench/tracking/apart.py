"""`python -m hpcbench.tracking.apart`, which version 0.1 starts: `hpcbench.tracking.tracker_process`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("hpcbench.tracking.tracker_process", run_name="__main__", alter_sys=True)
