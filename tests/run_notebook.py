"""Runs the code of a notebook in IPython and stores what each cell shows: ``python -m tests.run_notebook FILE``.

Needs the packages of ``make venv-docs`` on Python's path. Times and random names are written as ``…``, so that a file
that runs as before stays as it is.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_CHANGING = re.compile(
    r"\b\d{13}\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|0x[0-9a-f]+"
)


def run(notebook: dict[str, Any]) -> None:
    """Run the cells in order in one shell, and put what they show into the notebook.

    Raises:
        RuntimeError: a cell failed; with its number and the error.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        with capture_output() as captured:
            result = shell.run_cell("".join(cell["source"]), silent=True)
        if not result.success:
            raise RuntimeError(f"cell {number} failed") from result.error_before_exec or result.error_in_exec
        cell["execution_count"] = number
        cell["outputs"] = []
        if captured.stdout:
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": _lines(captured.stdout)})
        for output in captured.outputs:
            cell["outputs"].append(_shown(output.data, number))
        if result.result is not None:
            data, _ = shell.display_formatter.format(result.result)
            cell["outputs"].append(_shown(data, number))


def _shown(data: dict[str, str], number: int) -> dict[str, Any]:
    shown = {kind: _lines(text) for kind, text in data.items()}
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": shown}


def _lines(text: str) -> list[str]:
    return _CHANGING.sub("…", text).splitlines(keepends=True)


def main(path: Path) -> None:
    """Run a notebook in place."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    run(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
