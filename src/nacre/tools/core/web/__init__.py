"""Reading web pages of hosts that are named."""

from nacre.tools.core.web.hosts import WebProblem
from nacre.tools.core.web.web_tools import web_tools

__all__ = ["WebProblem", "web_tools"]
