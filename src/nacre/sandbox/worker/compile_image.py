"""Compiles an image to native code, in a process of its own that ends afterwards."""

import json
from pathlib import Path

from nacre.sandbox.image import load_image
from nacre.sandbox.worker.wasm_runtime import Runtime


def main(settings_json: str) -> None:
    """Write the compiled module of an image to a file."""
    settings = json.loads(settings_json)
    wasm = load_image(settings["kind"], assets=Path(settings["assets"])).wasm()
    Path(settings["output"]).write_bytes(Runtime(Path(settings["library"])).compile(wasm))
