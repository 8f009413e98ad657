"""Resources of a node that serving a model takes: memory, GPUs, CPUs, disk; seen from outside the container.

A container's PID namespace hides processes from the driver, so the monitor runs in the worker, on the host
side of the node. It needs no GPU and no root.

    monitor = Monitor(os.getpid(), folders={"scratch": "/tmp"}, file=path, on_alarm=tell)
    monitor.start()
    …
    figures = memory_figures(monitor.phase("org/model: vqa"), logged_memory(lines_of_the_engine))
"""
