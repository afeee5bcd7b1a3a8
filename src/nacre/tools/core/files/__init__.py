"""Reading and writing files of a workspace that cannot be left."""

from nacre.tools.core.files.file_tools import file_tools
from nacre.tools.core.workspace import FileProblem, Workspace

__all__ = ["FileProblem", "Workspace", "file_tools"]
