"""docs/security.md promises nothing that no test tries to break."""

import ast
import re

from tests.support.markdown import ROOT, sections, table, unquoted

PROMISES = table(sections((ROOT / "docs" / "security.md").read_text(encoding="utf-8"))["Promises and their tests"])
