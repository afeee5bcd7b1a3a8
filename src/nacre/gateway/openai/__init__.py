"""The agents as models, for clients of OpenAI: Chat Completions and Responses over HTTP."""

from nacre.gateway.openai.router import openai_router

__all__ = ["openai_router"]
