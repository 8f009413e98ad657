"""`python -m hpcbench.launch.fingerprint`, which version 0.1 starts: `hpcbench.submit.fingerprint`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("hpcbench.submit.fingerprint", run_name="__main__", alter_sys=True)
