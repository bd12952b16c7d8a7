"""What a planted fault is: a context manager that replaces one function of the protocol while a seed runs.

Production code has no switch for any of them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

Plant: TypeAlias = Callable[[], AbstractContextManager[Any]]
