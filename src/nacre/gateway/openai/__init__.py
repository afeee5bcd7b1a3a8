"""The OpenAI API: Chat Completions and Responses, with agents as models."""

from nacre.gateway.openai.router import openai_router

__all__ = ["openai_router"]
