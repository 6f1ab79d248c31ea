"""Tables as earlier versions made them: with a login among the options in their files."""

import json
from collections.abc import Mapping
from pathlib import Path


def store_options(path: str | Path, options: Mapping[str, str]) -> None:
    """Put options into a file of a table: a schema, or the origin of a branch."""
    body = json.loads(Path(path).read_text())
    body["options"] |= options
    Path(path).write_text(json.dumps({**body, "unknown": [1]}))
