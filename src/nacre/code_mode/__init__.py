"""The model sees `exec` and `wait`, programs the hidden catalog; knows no model and no agent."""

from nacre.code_mode.cells import CellInfo
from nacre.code_mode.namespace_scope import namespace_tool
from nacre.code_mode.namespaces import Namespace, NamespaceContext, NamespaceRegistry
from nacre.code_mode.results import CodeModeResult, Completed, Failed, Waiting
from nacre.code_mode.run import CodeModeRun
from nacre.code_mode.runtime import CodeMode, Runtime
from nacre.tools import DirectResult

__all__ = [
    "CellInfo",
    "CodeMode",
    "CodeModeResult",
    "CodeModeRun",
    "Completed",
    "DirectResult",
    "Failed",
    "Namespace",
    "NamespaceContext",
    "NamespaceRegistry",
    "Runtime",
    "Waiting",
    "namespace_tool",
]
