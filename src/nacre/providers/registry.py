"""The providers of all configured models; failed requests of remote models are retried."""

from __future__ import annotations

import threading
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from nacre.backoff import RetryPolicy
from nacre.config import DEFAULT_CONTEXT_TOKENS, DEFAULT_MODEL, nearest_key
from nacre.errors import ConfigError, ProviderError
from nacre.foreign_calls import call_in_thread
from nacre.providers.base import PayloadRefusedError, Retrying
from nacre.providers.provider_secrets import get_api_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable

    from nacre.config import ModelsConfig, ProviderApi, ProviderConfig
    from nacre.providers.base import ModelEvent, ModelRequest, Provider

_PATH: Final = "models.providers"
_MAX_SHOWN_CHARACTERS: Final = 100
# Closing a connection is fast unless the connection is broken.
_CLOSE_SECONDS: Final = 2.0


class Providers:
    """Providers by model id; the models of one provider share its connections."""

    def __init__(self, config: ModelsConfig, *, first_retry_seconds: float = 0.5) -> None:
        self._config = config
        self._first_retry_seconds = first_retry_seconds
        self._by_id: dict[str, Provider] = {}
        self._backends: dict[str, _LazyBackend] = {}

    def get(self, model_id: str) -> Provider:
        """The provider for `<provider>/<model>`, without opening a connection.

        Raises ConfigError for an unknown model, and MissingReferenceError if the API key is
        missing.
        """
        provider = self._by_id.get(model_id)
        if provider is None:
            provider = self._by_id[model_id] = self._make(model_id)
        return provider

    def list_models(self) -> list[str]:
        """The model ids in the configuration; see also `list_open_providers`."""
        model_ids = [
            f"{provider.name}/{name}"
            for provider in self._config.providers.values()
            for name in provider.models
        ]
        return list(dict.fromkeys([*model_ids, DEFAULT_MODEL]))

    async def prepare(self, model_id: str) -> None:
        """Open a model before its first request; raises ConfigError and ProviderError."""
        provider = self.get(model_id)
        if isinstance(provider, RemoteProvider):
            await provider.prepare()

    async def aclose(self) -> None:
        """Close all connections, including those of running requests."""
        for backend in self._backends.values():
            await backend.aclose()
        self._backends.clear()
        self._by_id.clear()

    def list_open_providers(self) -> list[str]:
        """The providers without a list of models, which accept any model name."""
        return [
            name
            for name, config in self._config.providers.items()
            if not config.models and config.api != "demo"
        ]

    def _make(self, model_id: str) -> Provider:
        provider_name, _, name = model_id.partition("/")
        if model_id == DEFAULT_MODEL:
            return _make_demo()
        config = self._config.providers.get(provider_name)
        if config is None or not name or not name.isprintable():
            raise _unknown_model(model_id, self.list_models(), any_of=self.list_open_providers())
        if config.models and name not in config.models:
            raise _unknown_model(model_id, (f"{config.name}/{each}" for each in config.models))
        if config.api == "demo":
            return _make_demo()
        return self._make_remote(config, name, model_id)

    def _make_remote(self, config: ProviderConfig, name: str, model_id: str) -> Provider:
        # Checked here, so that a missing key fails before the run starts.
        get_api_key(config)
        backend = self._backends.setdefault(config.name, _LazyBackend(config))
        model = config.models.get(name)
        return RemoteProvider(
            model_id=model_id,
            context_tokens=model.context_tokens if model else DEFAULT_CONTEXT_TOKENS,
            retries=RetryPolicy(
                max_retries=config.max_retries, first_seconds=self._first_retry_seconds
            ),
            open_model=lambda: backend.model(name, model_id),
        )


def _unknown_model(
    model_id: str, known: Iterable[str], *, any_of: Iterable[str] = ()
) -> ConfigError:
    """`any_of` are providers whose models are not listed."""
    names, providers = tuple(known), tuple(any_of)
    shown = model_id[:_MAX_SHOWN_CHARACTERS]
    near = nearest_key(model_id, names)
    provider, _, name = shown.partition("/")
    if near is None and name and (meant := nearest_key(provider, providers)):
        near = f"{meant}/{name}"
    others = f", and any model of {', '.join(providers)}" if providers else ""
    hint = f"did you mean `{near}`?" if near else f"known: {', '.join(names) or 'none'}{others}"
    return ConfigError(_PATH, f"has no model {shown!r}; {hint}")


def _make_demo() -> Provider:
    from nacre.providers.demo import DemoProvider

    return DemoProvider()


class RemoteModel(Protocol):
    """Sends a request once; raises ProviderError, or PayloadRefusedError if it was not sent."""

    def attempt(self, request: ModelRequest, *, number: int) -> AsyncGenerator[ModelEvent]: ...


class Backend(Protocol):
    """The models of one provider, with shared connections."""

    def model(self, name: str, *, model_id: str) -> RemoteModel: ...

    async def aclose(self) -> None: ...


class _LazyBackend:
    """Opened in a thread by the first request, because importing the SDKs takes seconds."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._lock = anyio.Lock()
        # A thread continues to open the backend after its request is cancelled.
        self._thread_lock = threading.Lock()
        self._backend: Backend | None = None
        self._models: dict[str, RemoteModel] = {}

    async def model(self, name: str, model_id: str) -> RemoteModel:
        async with self._lock:
            if name not in self._models:
                self._models[name] = await call_in_thread(lambda: self._make(name, model_id))
            return self._models[name]

    async def aclose(self) -> None:
        async with self._lock:
            backend, self._backend = self._backend, None
            self._models.clear()
            if backend is not None:
                await backend.aclose()

    def _make(self, name: str, model_id: str) -> RemoteModel:
        with self._thread_lock:
            if self._backend is None:
                self._backend = self._open(model_id)
            return self._backend.model(name, model_id=model_id)

    def _open(self, model_id: str) -> Backend:
        try:
            import_backend(self._config.api)
        except ModuleNotFoundError as error:
            raise ProviderError(
                f"{model_id} cannot be used: {error.name} is not installed; "
                "run: pip install 'nacre-ai[gateway]'"
            ) from None
        if self._config.api == "openai-completions":
            from nacre.providers.chat_completions import ChatCompletionsBackend

            return ChatCompletionsBackend(self._config)
        from nacre.providers.pydantic_ai_provider import PydanticAiBackend

        return PydanticAiBackend(self._config)


def import_backend(api: ProviderApi) -> None:
    """Import the libraries of this API, which takes up to seconds; raises ModuleNotFoundError."""
    name = "chat_completions" if api == "openai-completions" else "pydantic_ai_provider"
    import_module(f"nacre.providers.{name}")


class RemoteProvider:
    """One model; the first request awaits `open_model`, because opening a model is slow."""

    def __init__(
        self,
        *,
        model_id: str,
        context_tokens: int,
        retries: RetryPolicy,
        open_model: Callable[[], Awaitable[RemoteModel]],
    ) -> None:
        self._model_id = model_id
        self._context_tokens = context_tokens
        self._retries = retries
        self._open_model = open_model

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def context_tokens(self) -> int:
        return self._context_tokens

    async def prepare(self) -> None:
        """Open the model, so that the first request does not wait for it."""
        await self._open_model()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        events = self._events(request)
        try:
            yield events
        finally:
            # Shielded, because the connection must not outlive a cancelled request.
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await events.aclose()

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        model = await self._open_model()
        for number in count(1):
            has_begun = False
            try:
                async with aclosing(model.attempt(request, number=number)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except PayloadRefusedError as error:
                outcome: Retrying | Exception = error.reason
            except ProviderError as error:
                outcome = self._after(error, number, has_begun=has_begun)
            if isinstance(outcome, Exception):
                # Raised outside of `except`, so that it has no context.
                raise outcome
            yield outcome
            await anyio.sleep(outcome.delay_seconds)

    def _after(
        self, error: ProviderError, number: int, *, has_begun: bool
    ) -> Retrying | ProviderError:
        """The retry after a failed attempt, or the final error."""
        delay_seconds = None
        # The caller already has the beginning of an answer, so a second answer cannot follow.
        if error.is_retryable and not has_begun:
            delay_seconds = self._retries.delay_seconds(
                number, requested_seconds=error.retry_after_seconds
            )
        if delay_seconds is None:
            return _add_attempts(error, number)
        return Retrying(attempt=number, delay_seconds=delay_seconds, problem=error.message)


def _add_attempts(error: ProviderError, number: int) -> ProviderError:
    if number == 1:
        return error
    return ProviderError(
        f"{error.message} ({number} attempts)",
        status=error.status,
        is_retryable=error.is_retryable,
        retry_after_seconds=error.retry_after_seconds,
        is_context_overflow=error.is_context_overflow,
    )
