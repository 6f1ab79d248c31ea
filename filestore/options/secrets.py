"""Options whose values nobody may see on a screen, in a log or in a system table."""

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|token$|credential|user\.info$|(^|\.)key(\.pem|\.password|$)")
# user:password@host with whatever a careless user wrote unescaped, and ?password=
_IN_ADDRESS: Final = re.compile(r"(://[^/:@\s]*:)\S*(?=@)|(password=)[^&\s]+")
STARS: Final = "******"


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, sorted, with stars for what must not be seen."""
    return {key: shown_value(key, value) for key, value in sorted(options.items())}


def shown_value(key: str, value: str) -> str:
    """The value with stars for what must not be seen: all of it, or the password inside an address."""
    if _SECRET.search(key.lower()):
        return STARS
    return _IN_ADDRESS.sub(lambda found: f"{found[1] or found[2]}{STARS}", value) if "://" in value else value
