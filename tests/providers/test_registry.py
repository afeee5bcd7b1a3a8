"""Models are found by name."""

import subprocess
import sys
import threading
from dataclasses import replace
from typing import NoReturn

import anyio
import anyio.to_thread
import pytest

from nacre.config.models import DEFAULT_CONTEXT_TOKENS, ModelConfig, ModelsConfig, ProviderConfig
from nacre.errors import ConfigError, MissingReferenceError, ProviderError
from nacre.messages import user_message
from nacre.providers import pydantic_ai_provider
from nacre.providers.base import ModelRequest
from nacre.providers.demo import DemoProvider
from nacre.providers.registry import Providers
from tests.providers.asking import WAIT_SECONDS

OPENAI = ProviderConfig(
    name="openai",
    api="openai-responses",
    api_key="x",
    models={
        "gpt-6": ModelConfig(id="gpt-6", name="GPT-6", context_tokens=400_000),
        "gpt-6-mini": ModelConfig(id="gpt-6-mini", name="GPT-6 mini"),
    },
)
LOCAL = ProviderConfig(name="local", api="openai-completions", base_url="http://127.0.0.1:1/v1")
PROVIDERS = Providers(ModelsConfig(providers={"openai": OPENAI, "local": LOCAL}))
WITH_SDK = replace(LOCAL, api="openai-responses")


def test_a_model_is_made_once() -> None:
    assert PROVIDERS.get("openai/gpt-6") is PROVIDERS.get("openai/gpt-6")
    assert PROVIDERS.get("openai/gpt-6").model_id == "openai/gpt-6"


def test_the_context_of_a_model_is_what_the_configuration_says_or_a_careful_guess() -> None:
    assert PROVIDERS.get("openai/gpt-6").context_tokens == 400_000
    assert PROVIDERS.get("local/any/model").context_tokens == DEFAULT_CONTEXT_TOKENS


def test_the_names_of_models_may_hold_slashes() -> None:
    assert PROVIDERS.get("local/meta/llama-4").model_id == "local/meta/llama-4"


def test_the_demonstration_needs_no_configuration() -> None:
    assert isinstance(Providers(ModelsConfig(providers={})).get("demo/demo"), DemoProvider)


def test_the_listed_models_are_known() -> None:
    assert PROVIDERS.list_models() == ["openai/gpt-6", "openai/gpt-6-mini", "demo/demo"]


@pytest.mark.parametrize(
    ("model_id", "meant"),
    [
        ("opnai/gpt-6", "openai/gpt-6"),
        ("openai/gpt6", "openai/gpt-6"),
        ("openai/gpt-6-min", "openai/gpt-6-mini"),
        ("openai", "openai/gpt-6"),
        ("locl/any", "local/any"),
    ],
)
def test_an_unknown_model_is_refused_with_the_nearest_known(model_id: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="has no model") as caught:
        PROVIDERS.get(model_id)
    assert f"did you mean `{meant}`?" in str(caught.value)


def test_a_name_that_is_like_no_other_gets_the_list() -> None:
    with pytest.raises(
        ConfigError, match="known: openai/gpt-6, openai/gpt-6-mini, demo/demo"
    ) as caught:
        PROVIDERS.get("x" * 10_000)
    assert str(caught.value).endswith("demo/demo, and any model of local")


async def ask(providers: Providers, model_id: str) -> None:
    request = ModelRequest(instructions="", messages=[user_message("hi")])
    with anyio.fail_after(WAIT_SECONDS):
        async with providers.get(model_id).stream(request) as events:
            async for _ in events:
                pass


def test_a_provider_without_a_key_says_where_to_put_one_before_it_is_asked() -> None:
    keyless = Providers(ModelsConfig(providers={"openai": replace(OPENAI, api_key="")}))
    problem = r"`models\.providers\.openai\.apiKey` is not set; set OPENAI_API_KEY"
    with pytest.raises(MissingReferenceError, match=problem):
        keyless.get("openai/gpt-6")
    # A header may carry it instead.
    headers = {"authorization": "Bearer x"}
    headed = ModelsConfig(providers={"openai": replace(OPENAI, api_key="", headers=headers)})
    assert Providers(headed).get("openai/gpt-6").model_id == "openai/gpt-6"


def test_a_provider_that_lacks_what_its_entry_names_is_not_asked_without_it() -> None:
    lacking = replace(LOCAL, missing="`models.providers.local.headers.x` uses the variable X")
    with pytest.raises(MissingReferenceError, match=r"cannot be used: .* uses the variable X"):
        Providers(ModelsConfig(providers={"local": lacking})).get("local/any")


async def test_a_missing_library_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "nacre.providers.pydantic_ai_provider", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    with pytest.raises(ProviderError, match=r"run: pip install 'nacre-ai\[gateway\]'"):
        await ask(Providers(ModelsConfig(providers={"local": WITH_SDK})), "local/any")


async def test_who_gives_up_while_the_libraries_are_loaded_does_not_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_loading, may_go_on = threading.Event(), threading.Event()

    def slow_backend(_config: ProviderConfig) -> NoReturn:
        is_loading.set()
        may_go_on.wait(WAIT_SECONDS)
        raise ProviderError("nobody is there any more")

    monkeypatch.setattr(pydantic_ai_provider, "PydanticAiBackend", slow_backend)
    providers = Providers(ModelsConfig(providers={"local": WITH_SDK}))
    with anyio.fail_after(WAIT_SECONDS / 2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, providers, "local/any")
            await anyio.to_thread.run_sync(is_loading.wait)
            tasks.cancel_scope.cancel()
    assert not may_go_on.is_set()
    may_go_on.set()


async def test_closing_twice_or_unused_is_harmless() -> None:
    providers = Providers(ModelsConfig(providers={"local": LOCAL}))
    providers.get("local/any")
    await providers.aclose()
    await providers.aclose()


async def test_chat_completions_need_no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nacre.providers.chat_completions", raising=False)
    for name in ("pydantic_ai", "openai", "nacre.providers.pydantic_ai_provider"):
        monkeypatch.setitem(sys.modules, name, None)
    providers = Providers(ModelsConfig(providers={"local": LOCAL}))
    await providers.prepare("local/any")
    await providers.aclose()


def test_nothing_slow_is_imported_before_a_model_is_asked() -> None:
    code = (
        "import sys; from nacre.providers.registry import Providers;"
        "from nacre.config.models import ModelsConfig, ProviderConfig;"
        "config = ProviderConfig(name='openai', api='openai-responses', api_key='k');"
        "Providers(ModelsConfig(providers={'openai': config})).get('openai/gpt-6');"
        "slow = {'pydantic_ai', 'openai', 'anthropic', 'google', 'httpx2', 'pydantic'};"
        "sys.exit(', '.join(slow & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
