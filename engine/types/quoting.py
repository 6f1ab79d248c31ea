"""Names in backquotes."""


def quoted(name: str) -> str:
    """A column or table name in backquotes, for SQL and Spark, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
