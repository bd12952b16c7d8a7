"""Loading LanceDB without the client of its REST catalogues, which a table in a directory never uses.

`import lancedb` imports `lance_namespace_urllib3_client`: some 200 generated modules of pydantic models that take 0.55 of
the 0.85 CPU seconds of the whole import, and 19 MB. In a shard every name of that package is an empty class instead. If
LanceDB stops importing the package nothing is replaced; if it begins to use it for tables in directories, the shard's own
tests fail.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

UNUSED = "lance_namespace_urllib3_client"


def leave_out_catalogue_client() -> None:
    """Let LanceDB be loaded without it from now on; where it is loaded already, and at a second call, nothing changes."""
    if UNUSED not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder, Loader):
    """Finds the package, and whatever is imported from inside it, as modules of such classes."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_unused = fullname.partition(".")[0] == UNUSED
        return ModuleSpec(fullname, self, is_package=True) if is_unused else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Plain(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is nothing in it."""


class _Plain(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (SimpleNamespace,), {})
