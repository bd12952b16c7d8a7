"""The shard's own tool, started by `groundplane corpus`: the command line imports none of the programs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from groundplane.errors import CorruptData, InvalidInput, Unavailable
from groundplane.local.layout import DataDirectory
from groundplane.local.storage import read_storage
from groundplane.wire.names import CorpusKey, Incarnation

_MODULE = "groundplane_shard.tool"
_PROGRESS = "progress "


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the tool on an incarnation; `settings` come on top of those of corpus and store."""

    arguments: Sequence[str]
    key: CorpusKey
    incarnation: Incarnation
    settings: Mapping[str, str] = {}

    def environment(self, data: DataDirectory) -> dict[str, str]:
        """Return the tool's environment: what the user set comes through, the keys of a bucket among it."""
        own = {"GROUNDPLANE_CORPUS_KEY": self.key, "GROUNDPLANE_INCARNATION": self.incarnation}
        return {**os.environ, **own, **read_storage(data).environment(data), **self.settings}


def run_tool(call: ToolCall, data: DataDirectory, on_progress: Callable[[str], None]) -> tuple[Any, int]:
    """Return what the tool wrote and its exit code. Raises the kind of error that its exit code stands for.

    `on_progress` gets what it says on its way. Interrupting ends it too.
    """
    command = (sys.executable, "-P", "-m", _MODULE, *call.arguments)
    with tempfile.TemporaryFile() as output:  # not a second pipe: it could fill while only the first is read
        with subprocess.Popen(
            command, env=call.environment(data), stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            message = _read_messages(process.stderr or (), on_progress)
        output.seek(0)
        found = output.read()
    if found:
        return msgspec.json.decode(found), process.returncode
    if "No module named" in message:
        raise Unavailable(
            f"the shard's programs are not installed: pip install 'groundplane[shard]' ({message[-128:]})"
        )
    message = message or f"{_MODULE} ended with exit code {process.returncode} and without a word"
    raise InvalidInput(message) if process.returncode == 2 else CorruptData(message)


def _read_messages(stderr: Iterable[str], on_progress: Callable[[str], None]) -> str:
    """Return what is no progress."""
    messages = []
    for line in stderr:
        if line.startswith(_PROGRESS):
            on_progress(line.removeprefix(_PROGRESS).rstrip())
        else:
            messages.append(line)
    return "".join(messages).strip()
