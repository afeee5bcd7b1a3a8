"""Converts the errors of a provider to ProviderError, with a short message without secrets."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import httpx2
from pydantic_ai import exceptions as theirs

from nacre.errors import ProviderError
from nacre.providers.http_client import ResponseRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.config import ProviderConfig
    from nacre.providers.provider_secrets import ProviderSecrets

_RETRYABLE_STATUSES: Final = (408, 409, 429)
_MAX_DEPTH: Final = 4
_MAX_READ_CHARACTERS: Final = 4_000
_CONNECTION_FAULTS: Final = (
    theirs.ModelConnectionError,
    httpx2.TransportError,
    httpx2.StreamError,
)


class ProviderErrors:
    """Converts the errors of one model."""

    def __init__(self, model_id: str, config: ProviderConfig, secrets: ProviderSecrets) -> None:
        self._model_id = model_id
        self._config = config
        self._secrets = secrets

    def convert(self, error: Exception) -> ProviderError:
        if isinstance(error, ProviderError):
            return error
        for each in _chain(error):
            if isinstance(each, ResponseRefusedError):
                return self._error(str(each))
        if isinstance(error, theirs.ModelHTTPError):
            return self._refusal(error)
        if _is_timeout(error):
            return self._timeout(error)
        if isinstance(error, _CONNECTION_FAULTS):
            return self._error(
                f"the connection to {self._address} failed: {_root_text(error)}", is_retryable=True
            )
        if isinstance(error, theirs.ModelAPIError):
            return self._error(
                _find_message(error.body) or error.message,
                is_retryable=_is_temporary(error),
                is_context_overflow=isinstance(error, theirs.ModelContextWindowExceededError),
            )
        if isinstance(error, theirs.UserError):
            return self._error(f"the request cannot be sent: {error}")
        return self._error(f"the response cannot be read: {type(error).__name__}: {error}")

    def incomplete(self) -> ProviderError:
        return self._error(
            f"the connection to {self._address} failed: the response is incomplete",
            is_retryable=True,
        )

    @property
    def _address(self) -> str:
        return self._secrets.url(self._config.base_url) if self._config.base_url else "the provider"

    def _refusal(self, error: theirs.ModelHTTPError) -> ProviderError:
        status = error.status_code
        message = _find_message(error.body) or "no further information"
        return self._error(
            f"{_status_text(status)}: {message}{self._hint(status)}{_wait_text(error.retry_after)}",
            status=status,
            is_retryable=(status in _RETRYABLE_STATUSES or status >= 500)
            and not isinstance(error, theirs.ModelQuotaExceededError),
            retry_after_seconds=error.retry_after,
            is_context_overflow=isinstance(error, theirs.ModelContextWindowExceededError),
        )

    def _hint(self, status: int) -> str:
        path = f"models.providers.{self._config.name}"
        match status:
            case 401 | 403:
                return f" (check `{path}.apiKey`)"
            case 404:
                return f" (check the model's name and `{path}.baseUrl`)"
            case _:
                return ""

    def _timeout(self, error: Exception) -> ProviderError:
        is_connecting = "connect" in _root_name(error).lower()
        action = "accept the connection" if is_connecting else "respond"
        return self._error(
            f"{self._address} did not {action} in time "
            f"(`models.providers.{self._config.name}.timeoutSeconds` "
            f"is {self._config.timeout_seconds:g})",
            # A response timeout is long, so do not wait for it again.
            is_retryable=is_connecting,
        )

    def _error(
        self,
        problem: str,
        *,
        status: int = 0,
        is_retryable: bool = False,
        retry_after_seconds: float | None = None,
        is_context_overflow: bool = False,
    ) -> ProviderError:
        return ProviderError(
            f"{self._model_id}: {self._secrets.text(problem)}",
            status=status,
            is_retryable=is_retryable,
            retry_after_seconds=retry_after_seconds,
            is_context_overflow=is_context_overflow,
        )


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, theirs.ModelTimeoutError | httpx2.TimeoutException)


def _is_temporary(error: theirs.ModelAPIError) -> bool:
    return isinstance(
        error, theirs.ModelRateLimitError | theirs.ModelUnavailableError | theirs.ModelServerError
    )


def _wait_text(retry_after_seconds: float | None) -> str:
    return f" (retry after {retry_after_seconds:g} s)" if retry_after_seconds else ""


def _status_text(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _find_message(body: object, depth: int = 0) -> str:
    """The message in `{"error": {"message": …}}`, `{"message": …}`, a list of these, or text."""
    if isinstance(body, str):
        return " ".join(body[:_MAX_READ_CHARACTERS].split())
    if depth == _MAX_DEPTH:
        return ""
    if isinstance(body, list) and body:
        return _find_message(cast("list[object]", body)[0], depth + 1)
    if isinstance(body, dict):
        members = cast("dict[object, object]", body)
        for key in ("error", "message", "detail"):
            message = _find_message(members.get(key), depth + 1)
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
