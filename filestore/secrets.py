"""Options whose values nobody may see on a screen, in a log or in a system table."""

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|token$|credential|user\.info$|(^|\.)key(\.pem|\.password|$)")
STARS: Final = "******"


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, sorted, with stars for what must not be seen."""
    return {key: STARS if _SECRET.search(key.lower()) else value for key, value in sorted(options.items())}
