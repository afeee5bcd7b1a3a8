"""The namespaces of one run: which it may see now, and the scopes that were made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from nacre.code_mode.namespaces import (
    NamespaceContext,
    NamespaceRegistration,
    NamespaceRegistry,
    open_namespace,
    visible_registrations,
)

if TYPE_CHECKING:
    from nacre.code_mode.namespace_runtime import NamespaceRuntime
    from nacre.code_mode.namespaces import Namespace
    from nacre.json_types import JsonObject
    from nacre.run_context import AbortSignal, RunContext
    from nacre.tools import Catalog


class RunNamespaces:
    """Asks the registry each time: what a plugin cleared is gone for the next program."""

    def __init__(
        self,
        registry: NamespaceRegistry,
        catalog: Catalog,
        *,
        context: RunContext,
        config: JsonObject,
        abort: AbortSignal,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._context = NamespaceContext(
            agent_id=context.agent_id,
            session_key=context.session_key,
            session_id=context.session_id,
            run_id=context.run_id,
            config=config,
            abort=abort,
            context=context,
        )
        self._opened: dict[NamespaceRegistration, NamespaceRuntime] = {}
        self._opening = anyio.Lock()

    def visible(self) -> list[Namespace]:
        """What the model is told of."""
        return [registration.namespace for registration in self._registrations()]

    async def open(self) -> dict[str, NamespaceRuntime]:
        """By global name; each scope is made once per run, when the first program needs it."""
        visible = self._registrations()
        if all(registration in self._opened for registration in visible):
            return self._by_global_name(visible)
        async with self._opening:
            for registration in visible:
                if registration not in self._opened:
                    self._opened[registration] = await open_namespace(
                        registration, self._catalog, self._context
                    )
        return self._by_global_name(visible)

    def _registrations(self) -> list[NamespaceRegistration]:
        return visible_registrations(self._registry, self._catalog)

    def _by_global_name(self, visible: list[NamespaceRegistration]) -> dict[str, NamespaceRuntime]:
        return {each.namespace.global_name: self._opened[each] for each in visible}
