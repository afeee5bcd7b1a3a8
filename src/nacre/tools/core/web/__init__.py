"""Reading web pages of hosts that are named."""

from nacre.tools.core.web.web_tools import web_tools
from nacre.tools.core.web_hosts import WebProblem

__all__ = ["WebProblem", "web_tools"]
