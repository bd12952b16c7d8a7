"""Logs as JSON lines on stderr: an event name and fields, never a sentence with values inside.

Texts, queries, tokens and keys are never fields; long values are cut. Lines of foreign libraries take the same shape.
"""

import logging
import sys
from datetime import UTC, datetime
from traceback import format_tb
from typing import Any, TextIO

import msgspec

MAX_FIELD_CHARACTERS = 1_024
_FIELDS = "groundplane_fields"


class Log:
    """Writes events of one component: `log.info("snapshot_published", sequence=38, seconds=0.4)`."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(f"groundplane.{component}")

    def info(self, event: str, **fields: Any) -> None:
        """Write what an operator wants to see once."""
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Write what works again by itself but should not happen."""
        self._logger.warning(event, extra={_FIELDS: fields})

    def error(self, event: str, **fields: Any) -> None:
        """Write what somebody must look at."""
        self._logger.error(event, extra={_FIELDS: fields})

    def exception(self, event: str, **fields: Any) -> None:
        """Write a bug: the event with the traceback of the exception being handled."""
        self._logger.error(event, extra={_FIELDS: fields}, exc_info=True)  # noqa: LOG014 - called by handlers


def describe_traceback(error: BaseException) -> str:
    """Return where `error` and what led to it were raised, and their types, the first cause first.

    Not their texts: those of foreign libraries quote what they could not handle, a tenant's document or its id.
    """
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{describe_traceback(earlier)}then\n" if earlier is not None else ""
    kind = type(error)
    return f"{before}{''.join(format_tb(error.__traceback__))}{kind.__module__}.{kind.__qualname__}\n"


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, component, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its newline."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix("groundplane."),
            "event": record.getMessage()[:MAX_FIELD_CHARACTERS],
        }
        for name, value in getattr(record, _FIELDS, {}).items():
            line[name] = value[:MAX_FIELD_CHARACTERS] if isinstance(value, str) else value
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = describe_traceback(record.exc_info[1])[-8 * MAX_FIELD_CHARACTERS :]
        return msgspec.json.encode(line, enc_hook=repr).decode()


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send every record of this process at `level` (`debug`, `info`, `warning`, `error`) or above to `stream` as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in ("httpx", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
