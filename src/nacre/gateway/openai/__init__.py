"""The OpenAI API: Chat Completions and Responses, with agents as models."""

from nacre.gateway.openai.router import create_openai_api
from nacre.gateway.openai.router import router as openai_router

__all__ = ["create_openai_api", "openai_router"]
