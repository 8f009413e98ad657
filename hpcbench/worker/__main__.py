"""`python -m hpcbench.worker EXPERIMENT GROUP`."""

import sys

from hpcbench.worker import main

main(sys.argv[1:])
