"""Running commands of the machine: to their end, or in the background."""

from nacre.tools.core.shell.processes import Processes
from nacre.tools.core.shell.shell_process import ShellProblem
from nacre.tools.core.shell.shell_tools import shell_tools

__all__ = ["Processes", "ShellProblem", "shell_tools"]
