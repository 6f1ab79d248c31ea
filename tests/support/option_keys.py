"""Option keys as Python can spell them, for keyword arguments of tests."""

from collections.abc import Mapping


def dotted(options: Mapping[str, str]) -> dict[str, str]:
    """``log__scan`` is log-scan and ``log_scan`` is log.scan: names of options that Python can spell."""
    return {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}


def dashed(options: Mapping[str, str]) -> dict[str, str]:
    """``log__scan`` is log.scan and ``log_scan`` is log-scan: the other way to spell names of options."""
    return {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
