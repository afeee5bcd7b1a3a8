"""The sandbox images in this package, and the library that runs them.

An image is QuickJS with the guest code already loaded in its memory, as a WebAssembly module. Its
identity is the hash of its bytes, which covers the engine, the guest code and the build settings. A
snapshot contains the identity of its image.

Workers import this module too. They start often, so it does without `dataclasses` and `pathlib`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from nacre.errors import ImageError

if TYPE_CHECKING:
    from pathlib import Path

ImageKind = Literal["cell", "typescript"]

_ASSETS = os.path.join(os.path.dirname(__file__), "assets")


class Image(NamedTuple):
    """The metadata of an image."""

    kind: ImageKind
    path: str
    identity: str
    entries: dict[str, int]
    heap_bytes: int
    memory_bytes: int
    random_state: int
    scratch: int
    scratch_bytes: int
    stack_pointer: int
    undefined: int

    def facts(self) -> dict[str, Any]:
        """Everything but the path, as JSON. It is stored with a cell, see `restore_image`."""
        facts = self._asdict()
        del facts["path"]
        return facts

    def wasm(self) -> bytes:
        """Read the module. Raises ImageError if it is not the one the package was built with."""
        import hashlib

        try:
            with open(self.path, "rb") as file:
                wasm = file.read()
        except OSError as error:
            raise ImageError(f"cannot read the sandbox image {self.path}: {error}") from error
        found = hashlib.sha256(wasm).hexdigest()
        if found != self.identity:
            raise ImageError(
                f"the sandbox image {self.path} is not the one this package was built with: "
                f"its SHA-256 is {found}, expected {self.identity}; reinstall nacre"
            )
        return wasm


def load_image(kind: ImageKind, *, assets: str | os.PathLike[str] = _ASSETS) -> Image:
    """Load the metadata of an image, which the build wrote."""
    manifest = os.path.join(assets, "images.json")
    try:
        with open(manifest, "rb") as file:
            facts = json.load(file)["images"][kind]
        return Image(
            kind=kind,
            path=os.path.join(assets, facts["file"]),
            identity=facts["sha256"],
            entries=facts["entries"],
            heap_bytes=facts["heapBytes"],
            memory_bytes=facts["memoryBytes"],
            random_state=facts["randomState"],
            scratch=facts["scratch"],
            scratch_bytes=facts["scratchBytes"],
            stack_pointer=facts["stackPointer"],
            undefined=facts["undefined"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImageError(
            f"the sandbox image {kind!r} is missing or damaged ({manifest}: {error!r}); "
            "reinstall nacre, or run `make install` in a source tree"
        ) from error


def restore_image(facts: dict[str, Any], wasm: bytes, *, directory: str) -> Image:
    """Write an image that another version of Nacre has stored to a directory. `facts` are those
    that `Image.facts` has returned. Blocks. Raises ImageError and OSError."""
    try:
        image = Image(**facts, path=os.path.join(directory, "cell.wasm"))
    except TypeError as error:
        raise ImageError(f"an older sandbox image has other facts: {error}") from error
    with open(image.path, "wb") as file:
        file.write(wasm)
    image.wasm()
    return image


def engine_version(*, assets: str | os.PathLike[str] = _ASSETS) -> str:
    """Return the name and version of the engine in the images, for display."""
    try:
        with open(os.path.join(assets, "images.json"), "rb") as file:
            engine = json.load(file)["engine"]
        return f"{engine['package']} {engine['version']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImageError(f"the sandbox images are missing or damaged: {error!r}") from error


MEMORY_ADVICE: Final = (
    "if memory is short, raise the limit of the container, or `ulimit -v` to 6 GB or more: each "
    "worker reserves 5 GB of addresses"
)


class WasmError(Exception):
    """wasmtime cannot compile, load or instantiate a module."""

    @property
    def is_from_system(self) -> bool:
        """Whether the operating system refused something, such as memory."""
        return "(os error " in str(self)


def library_path() -> Path:
    """Return the path of the shared library in the installed `wasmtime` package."""
    # Not above: the supervisor calls this, and workers do without these imports.
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("wasmtime")
    if spec is None or not spec.submodule_search_locations:
        raise WasmError("the wasmtime package is not installed; reinstall nacre")
    # `platform.machine` says the same, and takes a millisecond to import.
    machine = os.uname().machine.replace("arm64", "aarch64")
    name = {"win32": "_wasmtime.dll", "darwin": "_libwasmtime.dylib"}.get(
        sys.platform, "_libwasmtime.so"
    )
    path = Path(spec.submodule_search_locations[0]) / f"{sys.platform}-{machine}" / name
    if not path.is_file():
        raise WasmError(f"the wasmtime package has no library for this machine: {path}")
    return path
