"""The compiled images of the sandbox, for tests with a cache of their own.

The start of the tests compiles them into the cache of the user. To compile them takes seconds, so
only tests of the compilation itself do it again.
"""

import shutil
from functools import cache
from pathlib import Path

from nacre.config import default_cache_directory
from nacre.sandbox.image import ImageKind, library_path
from nacre.sandbox.pool import Launcher

# Before a test can change the environment.
_CACHE = default_cache_directory()


@cache
def compiled_module(kind: ImageKind) -> Path:
    """The compiled module of an image. Its record is beside it."""
    # It has no thread and no open file before its first worker.
    launcher = Launcher(kind, None)
    key = launcher._module_key(library_path())  # pyright: ignore[reportPrivateUsage]
    return _CACHE / f"{key}.cwasm"


def copy_compiled_modules(directory: Path) -> None:
    """Fill a cache directory with the compiled modules."""
    kinds: tuple[ImageKind, ...] = ("cell", "typescript")
    for kind in kinds:
        module = compiled_module(kind)
        for file in (module, module.with_suffix(".json")):
            # With its permissions: the cache refuses files that others can write.
            shutil.copy(file, directory)
