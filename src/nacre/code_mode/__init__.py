"""Code mode: the model sees `exec` and `wait`, and its programs call the tools of the catalog."""

from nacre.code_mode.cell import CellInfo, CodeModeResult, Completed, Failed, Waiting
from nacre.code_mode.namespaces import (
    Namespace,
    NamespaceContext,
    NamespaceRegistry,
    namespace_tool,
)
from nacre.code_mode.run import CodeModeRun
from nacre.code_mode.runtime import CodeMode, ConfigInput, Runtime
from nacre.tools import DirectResult

__all__ = [
    "CellInfo",
    "CodeMode",
    "CodeModeResult",
    "CodeModeRun",
    "Completed",
    "ConfigInput",
    "DirectResult",
    "Failed",
    "Namespace",
    "NamespaceContext",
    "NamespaceRegistry",
    "Runtime",
    "Waiting",
    "namespace_tool",
]
