"""Schemas of Avro that strangers wrote: in files of tables, and in registries."""

from typing import Any


def has_weightless_items(schema: Any) -> bool:
    """Whether items of an array take no byte, so that few bytes are any number of them; or no one can tell."""
    empty: dict[str, bool] = {}  # by the name of a type

    def walk(part: Any) -> tuple[bool, bool]:
        """Whether a value takes no byte, and whether such items are in it."""
        if isinstance(part, str):
            return part == "null" or empty.get(part.rpartition(".")[2], False), False
        if isinstance(part, list):
            return False, any([walk(each)[1] for each in part])
        if not isinstance(part, dict):
            return False, False
        name = str(part.get("name", "")).rpartition(".")[2]
        match part.get("type"):
            case "record" | "error":
                empty[name] = False  # in itself
                found = [walk(each.get("type")) for each in part.get("fields") or () if isinstance(each, dict)]
                empty[name] = all(is_empty for is_empty, _ in found)
                return empty[name], any(has for _, has in found)
            case "fixed":
                empty[name] = part.get("size") == 0
                return empty[name], False
            case "array":
                is_empty, has = walk(part.get("items"))
                return False, is_empty or has
            case "map":
                return False, walk(part.get("values"))[1]
            case other:
                return walk(other)

    try:
        return walk(schema)[1]
    except RecursionError:  # nested too deeply for any reader
        return True
