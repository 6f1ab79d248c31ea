"""``python -m engine.demo``, which ``make demo`` runs."""

import sys

from engine.demo.run import main

sys.exit(main(sys.argv[1:]))
