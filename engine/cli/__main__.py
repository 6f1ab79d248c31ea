"""``python -m engine.cli``."""

from engine.cli.app import main

main()
