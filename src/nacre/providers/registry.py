"""The configured models, by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import anyio

from nacre.config.models import DEFAULT_CONTEXT_TOKENS, DEFAULT_MODEL
from nacre.config.setting_paths import nearest_key
from nacre.errors import ConfigError, ProviderError
from nacre.foreign_calls import call_in_thread
from nacre.providers.provider_secrets import key_of
from nacre.providers.remote_provider import RemoteProvider
from nacre.providers.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.config.models import ModelsConfig, ProviderConfig
    from nacre.providers.base import Provider
    from nacre.providers.pydantic_ai_provider import PydanticAiBackend, PydanticAiModel


_PATH: Final = "models.providers"
_MAX_SHOWN_CHARACTERS: Final = 100


class Providers:
    """Gives a provider for each model; they share the connections of their provider."""

    def __init__(self, config: ModelsConfig, *, first_retry_seconds: float = 0.5) -> None:
        self._config = config
        self._first_retry_seconds = first_retry_seconds
        self._by_id: dict[str, Provider] = {}
        self._backends: dict[str, _LazyBackend] = {}

    def get(self, model_id: str) -> Provider:
        """By `<provider>/<model>`. Cheap; raises ConfigError for one that there is not, and
        MissingReferenceError where the key for it is missing."""
        found = self._by_id.get(model_id)
        if found is None:
            found = self._by_id[model_id] = self._make(model_id)
        return found

    def known(self) -> list[str]:
        """The ids that the configuration lists; where it lists none, any may be asked for."""
        listed = [
            f"{provider.name}/{name}"
            for provider in self._config.providers.values()
            for name in provider.models
        ]
        return list(dict.fromkeys([*listed, DEFAULT_MODEL]))

    async def prepare(self, model_id: str) -> None:
        """Open a model before it is asked; raises ConfigError and ProviderError."""
        provider = self.get(model_id)
        if isinstance(provider, RemoteProvider):
            await provider.prepare()

    async def aclose(self) -> None:
        """Close all connections; answers that still come are cut off."""
        for backend in self._backends.values():
            await backend.aclose()
        self._backends.clear()
        self._by_id.clear()

    def unlisted(self) -> list[str]:
        """The providers of which any model may be asked for."""
        return [
            name
            for name, config in self._config.providers.items()
            if not config.models and config.api != "demo"
        ]

    def _make(self, model_id: str) -> Provider:
        provider_name, _, name = model_id.partition("/")
        if model_id == DEFAULT_MODEL:
            return _demo()
        config = self._config.providers.get(provider_name)
        if config is None or not name:
            raise _unknown(model_id, self.known(), any_of=self.unlisted())
        if config.models and name not in config.models:
            raise _unknown(model_id, (f"{config.name}/{each}" for each in config.models))
        if config.api == "demo":
            return _demo()
        return self._remote(config, name, model_id)

    def _remote(self, config: ProviderConfig, name: str, model_id: str) -> Provider:
        # Here, so that whoever asks for a run is told, and not the run itself.
        key_of(config)
        backend = self._backends.setdefault(config.name, _LazyBackend(config))
        model = config.models.get(name)
        return RemoteProvider(
            model_id=model_id,
            context_tokens=model.context_tokens if model else DEFAULT_CONTEXT_TOKENS,
            retries=Retries(most=config.max_retries, first_seconds=self._first_retry_seconds),
            open_model=lambda: backend.model(name, model_id),
        )


def _unknown(model_id: str, known: Iterable[str], *, any_of: Iterable[str] = ()) -> ConfigError:
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


def _demo() -> Provider:
    from nacre.providers.demo import DemoProvider

    return DemoProvider()


class _LazyBackend:
    """Opened in a thread by whoever asks first: importing the SDKs takes a second or two."""

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._lock = anyio.Lock()
        # For threads whose request was cancelled meanwhile: they go on opening.
        self._opening = threading.Lock()
        self._backend: PydanticAiBackend | None = None
        self._models: dict[str, PydanticAiModel] = {}

    async def model(self, name: str, model_id: str) -> PydanticAiModel:
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

    def _make(self, name: str, model_id: str) -> PydanticAiModel:
        try:
            from nacre.providers.pydantic_ai_provider import PydanticAiBackend
        except ModuleNotFoundError as error:
            raise ProviderError(
                f"{model_id} cannot be asked: {error.name} is not installed; "
                "run: pip install 'nacre-ai[gateway]'"
            ) from None
        with self._opening:
            if self._backend is None:
                self._backend = PydanticAiBackend(self._config)
            return self._backend.model(name, model_id=model_id)
