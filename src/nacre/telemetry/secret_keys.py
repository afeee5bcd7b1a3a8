"""Which names of members stand for secrets: `apiKey`, `client_secret`, `X-Auth-Token`."""

from __future__ import annotations

import re
from typing import Final

# Compared without case and separators, so that one spelling stands for all. Cursors and limits are
# called tokens as well; hiding them would make a record of paging or of a model call useless.
_SECRET_NAME: Final = re.compile(
    r"passw(?:or)?d|passphrase|passcode|pwd$"
    r"|secret(?!ar)|credential|authorization|cookie|bearer"
    r"|(?<!next)(?<!page)(?<!continuation)(?<!sync)(?<!max)(?<!stop)token(?:s|value|hash)?$"
    r"|(?:github|gitlab|azure|devops)pat$"
    r"|^(?:auth|jwt|otp)$"
)
_KEY_AT_END: Final = re.compile(r"keys?(?:pem|value|data)?$")
_SEPARATORS: Final = re.compile(r"[\W_\d]+")

# Most keys open nothing: `primaryKey`, `sortKey`, `issueKey`. These do.
_KINDS_OF_KEYS: Final = (
    "api private access account signing encryption master ssh gpg pgp rsa aes hmac jwt auth admin "
    "app application client consumer deploy functions license service servicerole shared "
    "subscription webhook"
)
# Whoever has an account there writes `openaiKey` for what opens it.
_ACCOUNTS: Final = (
    "openai anthropic claude gemini google vertex azure aws mistral groq grok xai cohere deepseek "
    "openrouter together fireworks perplexity replicate huggingface hf nvidia cerebras voyage jina "
    "elevenlabs deepgram assemblyai pinecone qdrant weaviate supabase github gitlab bitbucket "
    "slack discord telegram twilio sendgrid mailgun mailchimp postmark resend stripe paypal "
    "shopify hubspot salesforce notion airtable linear asana trello zendesk intercom datadog "
    "sentry grafana newrelic honeycomb pagerduty algolia typesense mapbox maps weather "
    "openweathermap serper serpapi tavily brave exa firecrawl cloudflare vercel netlify heroku "
    "digitalocean langsmith langfuse"
)
_BEFORE_KEY: Final = tuple(f"{_KINDS_OF_KEYS} {_ACCOUNTS}".split())

# A name may be as long as its writer likes.
_MAX_READ_CHARACTERS: Final = 200


def is_secret_key(key: str) -> bool:
    """Whether a member of this name is hidden whatever it holds."""
    if len(key) > 2 * _MAX_READ_CHARACTERS:
        key = f"{key[:_MAX_READ_CHARACTERS]}{key[-_MAX_READ_CHARACTERS:]}"
    name = _SEPARATORS.sub("", key).lower()
    return _SECRET_NAME.search(name) is not None or _is_key_to_something(name)


def is_amount(key: str, value: object) -> bool:
    """Whether this is a number of tokens rather than tokens, such as `{"inputTokens": 512}`."""
    return isinstance(value, int | float) and key.lower().endswith("tokens")


def _is_key_to_something(name: str) -> bool:
    ending = _KEY_AT_END.search(name)
    return ending is not None and name.endswith(_BEFORE_KEY, 0, ending.start())
