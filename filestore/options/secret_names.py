"""How a text is shown whose option is not declared: client properties, settings of other engines, addresses."""

import re
from typing import Final

STARS: Final = "******"
_SECRET: Final = re.compile(
    r"password|secret|jaas|credential|user\.info$|(^|\.)key(\.pem|\.password)|(key|token|sas|auth|passwd)$"
)
# user:password@host with whatever a careless user wrote unescaped, and ?password=
_IN_ADDRESS: Final = re.compile(r"(://[^/:@\s]*:)\S*(?=@)|(password=)[^&\s]+")


def shown_text(key: str, text: str, *, is_declared: bool) -> str:
    """The text with stars for what must not be seen: all of it, or the password inside an address.

    Args:
        key: by whose name a secret is known, where it is not declared.
        text: of the option.
        is_declared: the option is known, and is no secret.
    """
    if not is_declared and _SECRET.search(key.lower()):
        return STARS
    return _IN_ADDRESS.sub(lambda found: f"{found[1] or found[2]}{STARS}", text) if "://" in text else text
