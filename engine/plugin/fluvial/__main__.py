"""The command ``fluvial`` as ``python -m fluvial``."""

import fluvial  # noqa: F401  (looks first whether another module hides a package)


def main() -> None:
    """Entry point of the script ``fluvial``."""
    from engine.cli.start import main as run

    run()


if __name__ == "__main__":
    main()
