"""Converts the errors of a provider to ProviderError, with a short message without secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import httpx2

from nacre.errors import ProviderError
from nacre.json_types import NotJsonError, decode_json
from nacre.providers.http_client import ResponseRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nacre.config import ProviderConfig
    from nacre.json_types import JsonValue
    from nacre.providers.provider_secrets import ProviderSecrets

_RETRYABLE_STATUSES: Final = (408, 409, 429)
_MAX_DEPTH: Final = 4
_MAX_READ_CHARACTERS: Final = 4_000
# What OpenAI and compatible servers say with a 429 if waiting does not help.
_QUOTA_CODES: Final = frozenset(
    (
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
    )
)
_OVERFLOW_CODE: Final = "context_length_exceeded"
# Servers without that code, such as OpenRouter, vLLM and Groq.
_OVERFLOW_PHRASES: Final = ("maximum context length", "reduce the length of the messages")
_OVERLOAD_PHRASES: Final = ("overloaded", "over capacity")
# The status of an error within a stream, by its code or type.
_STATUS_BY_CODE: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    **dict.fromkeys(_QUOTA_CODES, 429),
    _OVERFLOW_CODE: 400,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "server_is_overloaded": 503,
    "overloaded": 503,
    "server_error": 500,
}


class ProviderErrors:
    """Converts the errors of one model."""

    def __init__(self, model_id: str, config: ProviderConfig, secrets: ProviderSecrets) -> None:
        self._model_id = model_id
        self._config = config
        self._secrets = secrets

    def convert(self, error: Exception) -> ProviderError:
        """Convert an error of the HTTP client, or one while a response is read."""
        if isinstance(error, ProviderError):
            return error
        if refusal := find_refusal(error):
            return self.fail(str(refusal))
        if isinstance(error, httpx2.TimeoutException):
            return self.timeout(error)
        if isinstance(error, httpx2.TransportError | httpx2.StreamError):
            return self.lost(error)
        return self.fail(f"the response cannot be read: {type(error).__name__}: {error}")

    def from_response(self, response: httpx2.Response, body: bytes) -> ProviderError:
        """The error of a response of OpenAI's API with an error status."""
        try:
            content = decode_json(body)
        except NotJsonError:
            content = body[:_MAX_READ_CHARACTERS].decode(errors="replace")
        error = content.get("error", content) if isinstance(content, dict) else content
        codes, message = _read_codes(error), find_message(error)
        return self.refuse(
            response.status_code,
            content,
            retry_after_seconds=_read_retry_after(response.headers),
            is_final=not _QUOTA_CODES.isdisjoint(codes),
            is_context_overflow=_is_overflow(codes, message),
        )

    def from_stream(self, error: JsonValue) -> ProviderError:
        """The error that a stream of OpenAI's API contains."""
        codes, message = _read_codes(error), find_message(error)
        is_context_overflow = _is_overflow(codes, message)
        if status := _find_status(codes):
            return self.refuse(
                status,
                error,
                is_final=not _QUOTA_CODES.isdisjoint(codes),
                is_context_overflow=is_context_overflow,
            )
        return self.fail(
            message or "an error within the response, without a message",
            is_retryable=any(phrase in code for code in codes for phrase in _OVERLOAD_PHRASES),
            is_context_overflow=is_context_overflow,
        )

    def incomplete(self) -> ProviderError:
        return self.fail(
            f"the connection to {self._address} failed: the response is incomplete",
            is_retryable=True,
        )

    def lost(self, error: Exception) -> ProviderError:
        """The connection failed."""
        return self.fail(
            f"the connection to {self._address} failed: {_root_text(error)}", is_retryable=True
        )

    def timeout(self, error: Exception) -> ProviderError:
        is_connecting = "connect" in _root_name(error).lower()
        action = "accept the connection" if is_connecting else "respond"
        return self.fail(
            f"{self._address} did not {action} in time "
            f"(`models.providers.{self._config.name}.timeoutSeconds` "
            f"is {self._config.timeout_seconds:g})",
            # A response timeout is long, so do not wait for it again.
            is_retryable=is_connecting,
        )

    def refuse(
        self,
        status: int,
        body: object,
        *,
        retry_after_seconds: float | None = None,
        is_final: bool = False,
        is_context_overflow: bool = False,
    ) -> ProviderError:
        """The provider refused the request; `is_final` if the same request will fail again."""
        message = find_message(body) or "no further information"
        return self.fail(
            f"{_status_text(status)}: {message}{self._hint(status)}"
            f"{_wait_text(retry_after_seconds)}",
            status=status,
            is_retryable=(status in _RETRYABLE_STATUSES or status >= 500) and not is_final,
            retry_after_seconds=retry_after_seconds,
            is_context_overflow=is_context_overflow,
        )

    @property
    def _address(self) -> str:
        return self._secrets.url(self._config.base_url) if self._config.base_url else "the provider"

    def _hint(self, status: int) -> str:
        path = f"models.providers.{self._config.name}"
        match status:
            case 401 | 403:
                return f" (check `{path}.apiKey`)"
            case 404:
                return f" (check the model's name and `{path}.baseUrl`)"
            case _:
                return ""

    def fail(
        self,
        problem: str,
        *,
        status: int = 0,
        is_retryable: bool = False,
        retry_after_seconds: float | None = None,
        is_context_overflow: bool = False,
    ) -> ProviderError:
        """The error with this message."""
        return ProviderError(
            f"{self._model_id}: {self._secrets.text(problem)}",
            status=status,
            is_retryable=is_retryable,
            retry_after_seconds=retry_after_seconds,
            is_context_overflow=is_context_overflow,
        )


def find_refusal(error: Exception) -> ResponseRefusedError | None:
    """Our own refusal of a response, which an SDK may have wrapped."""
    return next((each for each in _chain(error) if isinstance(each, ResponseRefusedError)), None)


def _read_codes(error: object) -> frozenset[str]:
    members = cast("dict[str, object]", error) if isinstance(error, dict) else {}
    codes = (members.get(key) for key in ("code", "type"))
    # Some servers send a number.
    return frozenset(str(code).lower() for code in codes if isinstance(code, str | int))


def _is_overflow(codes: frozenset[str], message: str) -> bool:
    text = message.lower()
    return _OVERFLOW_CODE in codes or any(phrase in text for phrase in _OVERFLOW_PHRASES)


def _find_status(codes: frozenset[str]) -> int | None:
    for code in codes:
        if status := _STATUS_BY_CODE.get(code):
            return status
        # OpenRouter sends the status itself.
        if code.isdecimal() and 400 <= int(code) < 600:
            return int(code)
    return None


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds until the provider wants the next request."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _wait_text(retry_after_seconds: float | None) -> str:
    return f" (retry after {retry_after_seconds:g} s)" if retry_after_seconds else ""


def _status_text(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def find_message(body: object, depth: int = 0) -> str:
    """The message in `{"error": {"message": …}}`, `{"message": …}`, a list of these, or text."""
    if isinstance(body, str):
        return " ".join(body[:_MAX_READ_CHARACTERS].split())
    if depth == _MAX_DEPTH:
        return ""
    if isinstance(body, list) and body:
        return find_message(cast("list[object]", body)[0], depth + 1)
    if isinstance(body, dict):
        members = cast("dict[object, object]", body)
        for key in ("error", "message", "detail"):
            message = find_message(members.get(key), depth + 1)
            if message:
                return message
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _root_text(error: Exception) -> str:
    """The message of the network error; the exceptions of the SDKs do not repeat it."""
    texts = [str(each) for each in _chain(error) if str(each)]
    return texts[-1] if texts else _root_name(error)


def _root_name(error: Exception) -> str:
    for each in _chain(error):
        if isinstance(each, httpx2.TransportError):
            return type(each).__name__
    return type(error).__name__
