"""``python -m benchmarks.demo``, which ``make demo`` runs."""

import sys

from benchmarks.demo.run import main

sys.exit(main(sys.argv[1:]))
