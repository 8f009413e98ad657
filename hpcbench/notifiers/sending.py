"""`python -m hpcbench.notifiers.sending`, which version 0.1 starts: `hpcbench.notify.deliver`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("hpcbench.notify.deliver", run_name="__main__", alter_sys=True)
