"""`python -m hpcbench.launch.local`, which version 0.1 starts: `hpcbench.submit.local`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("hpcbench.submit.local", run_name="__main__", alter_sys=True)
