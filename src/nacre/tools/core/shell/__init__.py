"""Running commands of the machine: to their end, or in the background."""

from nacre.tools.core.shell.processes import Processes
from nacre.tools.core.shell.shell_tools import shell_tools
from nacre.tools.core.shell_process import ShellProblem

__all__ = ["Processes", "ShellProblem", "shell_tools"]
