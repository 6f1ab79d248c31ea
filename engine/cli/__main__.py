"""``python -m engine.cli``."""

from engine.cli.start import main

main()
