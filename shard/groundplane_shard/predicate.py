"""stub"""


def sql_string(value: str) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"
