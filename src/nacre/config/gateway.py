"""The gateway and its database: addresses, authentication and limits."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from nacre.config.folders import user_folder
from nacre.config.references import key_path
from nacre.config.setting_paths import member_path
from nacre.errors import ConfigError
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.document import (
        GatewaySection,
        IsolationSection,
        NamedTokenSection,
        SnapshotKeysSection,
        StorageSection,
    )
    from nacre.config.references import Resolver

AuthMode = Literal["token", "none"]
TokenScope = Literal["read", "run", "approve", "admin"]

TOKEN_VARIABLE: Final = "NACRE_GATEWAY_TOKEN"

# The format of RFC 6750.
_TOKEN = lazy_pattern(r"[A-Za-z0-9._~+/-]+=*")
_MIN_TOKEN_CHARACTERS: Final = 16
_SQLITE = lazy_pattern(r"sqlite:///(.+)")
_POSTGRES = lazy_pattern(r"postgres(?:ql)?(://\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedToken:
    """A further token, for one client."""

    name: str
    token: str = field(repr=False)
    file: Path | None
    """Where it was read from."""
    scopes: frozenset[TokenScope]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """The HTTP server. It holds its token, and never shows it."""

    host: str = "127.0.0.1"
    port: int = 18_789
    auth_mode: AuthMode = "token"
    token: str = field(default="", repr=False)
    """Empty where none is configured: one has to be made."""
    token_file: Path | None = None
    """Where the token was read from."""
    named_tokens: tuple[NamedToken, ...] = ()
    max_body_bytes: int = 8_388_608
    max_concurrent_runs: int = 64
    shutdown_seconds: float = 10.0
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """More names under which clients reach it."""

    @property
    def token_files(self) -> tuple[Path, ...]:
        """The files that tokens were read from."""
        files = (self.token_file, *(named.file for named in self.named_tokens))
        return tuple(file for file in files if file is not None)


def resolve_gateway(section: GatewaySection, resolver: Resolver) -> GatewayConfig:
    """Resolve `gateway`; problems are noted."""
    auth = section.auth
    config = GatewayConfig(
        host=section.host,
        port=section.port,
        auth_mode=auth.mode,
        token=resolver.secret(auth, "token", "gateway.auth", variable=TOKEN_VARIABLE),
        token_file=resolver.path(auth.token_file, "gateway.auth.tokenFile"),
        named_tokens=_resolve_tokens(auth.tokens, resolver),
        max_body_bytes=section.max_body_bytes,
        max_concurrent_runs=section.max_concurrent_runs,
        shutdown_seconds=section.shutdown_seconds,
        cors_origins=tuple(section.cors_origins),
        allowed_hosts=tuple(section.allowed_hosts),
    )
    return resolver.attempt(lambda: check_auth(config, resolver.environment), config)


def _resolve_tokens(
    sections: Mapping[str, NamedTokenSection], resolver: Resolver
) -> tuple[NamedToken, ...]:
    """Resolve the tokens; one whose secret is missing is left out, and its problem is noted."""
    paths = {name: member_path("gateway.auth.tokens", name) for name in sections}
    tokens = [_resolve_token(name, it, paths[name], resolver) for name, it in sections.items()]
    return tuple(it for it in tokens if not resolver.has_problem_at(paths[it.name]))


def _resolve_token(
    name: str, section: NamedTokenSection, path: str, resolver: Resolver
) -> NamedToken:
    return NamedToken(
        name=name,
        token=resolver.secret(section, "token", path, variable=""),
        file=resolver.path(section.token_file, key_path(section, "token_file", path)),
        scopes=frozenset(section.scopes),
    )


def check_auth(config: GatewayConfig, environment: Mapping[str, str]) -> GatewayConfig:
    """Check the authentication settings. Raises ConfigError, without the token in its message."""
    if config.auth_mode == "none" and not is_loopback(config.host):
        raise ConfigError(
            "gateway.auth.mode",
            f'is "none", but the gateway listens on {config.host}: without a token it must listen '
            "on a loopback address (127.0.0.1, ::1 or localhost)",
        )
    if config.auth_mode == "none" and "*" in config.cors_origins:
        raise ConfigError(
            "gateway.corsOrigins",
            'has "*", but `gateway.auth.mode` is "none": any web page that you visit could run '
            "agents; list the origins of your pages, or require a token",
        )
    token = config.token
    if token and not is_strong_token(token):
        setting = "gateway.auth.tokenFile" if config.token_file else "gateway.auth.token"
        is_variable = token == environment.get(TOKEN_VARIABLE)
        raise _weak_token_error(TOKEN_VARIABLE if is_variable else setting, token)
    _check_named_tokens(config)
    return config


def _check_named_tokens(config: GatewayConfig) -> None:
    owners = {config.token: "gateway.auth"} if config.token else {}
    for named in config.named_tokens:
        path = member_path("gateway.auth.tokens", named.name)
        if not is_strong_token(named.token):
            raise _weak_token_error(path, named.token)
        if not named.scopes:
            raise ConfigError(
                f"{path}.scopes", "is empty; list what the token allows: read, run, approve, admin"
            )
        if named.token in owners:
            raise ConfigError(path, f"has the same token as `{owners[named.token]}`")
        owners[named.token] = path


def _weak_token_error(path: str, token: str) -> ConfigError:
    return ConfigError(
        path,
        f"has {len(token)} characters; a token needs at least {_MIN_TOKEN_CHARACTERS}, and may "
        "have letters, digits and -._~+/ only",
    )


def is_strong_token(token: str) -> bool:
    """Whether the token is long enough, and has the characters that a header can carry."""
    return len(token) >= _MIN_TOKEN_CHARACTERS and _TOKEN.fullmatch(token) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    # So that few have to import `ipaddress`.
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageConfig:
    """The database of sessions and trajectories."""

    url: str = field(repr=False)
    """`sqlite:///<absolute path>` or `postgresql://…`, which may hold a password."""
    retention_days: int | None = None
    """How long `nacre sessions prune` keeps unused sessions; None for no limit."""


def default_storage_url(environment: Mapping[str, str]) -> str:
    return f"sqlite:///{user_folder('data', environment) / 'nacre.db'}"


def resolve_storage(section: StorageSection, resolver: Resolver) -> StorageConfig:
    """Resolve `storage`; problems are noted, without the URL."""
    url = _resolve_storage_url(section.url, resolver)
    return StorageConfig(url=url, retention_days=section.retention_days)


def _resolve_storage_url(text: str, resolver: Resolver) -> str:
    default = default_storage_url(resolver.environment)
    given = resolver.expand(text, "storage.url")
    if not given:
        return default
    if sqlite := _SQLITE.fullmatch(given):
        name = sqlite[1]
        return f"sqlite:///{name if name == ':memory:' else resolver.absolute(name)}"
    if postgres := _POSTGRES.fullmatch(given):
        return f"postgresql{postgres[1]}"
    resolver.note(
        ConfigError(
            "storage.url",
            "is not a database address that Nacre knows; allowed: "
            "sqlite:///<path> and postgresql://<user>@<host>/<database>",
        )
    )
    return default


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotKeysConfig:
    """Where the keys of snapshots come from: a variable, a command, or else a file."""

    file: Path
    env: str = ""
    command: tuple[str, ...] = ()


def resolve_snapshot_keys(section: SnapshotKeysSection, resolver: Resolver) -> SnapshotKeysConfig:
    """Resolve `sandbox.snapshotKeys`; the keys are not read yet."""
    path = "sandbox.snapshotKeys"
    resolver.choose(section, ("file", "env", "command"), path)
    file = resolver.path(section.file, f"{path}.file")
    return SnapshotKeysConfig(
        file=file or user_folder("data", resolver.environment) / "snapshot-keys",
        env=section.env,
        command=tuple(section.command),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RayConfig:
    """The Ray cluster whose nodes run programs."""

    address: str = "auto"
    workers_per_node: int = 0

    def __post_init__(self) -> None:
        if self.address.startswith("ray://"):
            raise ConfigError(
                "sandbox.ray.address",
                f"is {self.address!r}, an address for Ray Client; run this process on a node of "
                "the cluster (`ray start --address=<host>:6379 --num-cpus=0`) and use "
                '<host>:6379 or "auto"',
            )


def resolve_ray(section: IsolationSection, resolver: Resolver) -> RayConfig | None:
    """Resolve `sandbox.executor` and `sandbox.ray`; None for workers on this machine."""
    if section.executor == "local":
        return None
    address = resolver.expand(section.ray.address, "sandbox.ray.address")
    try:
        return RayConfig(address=address or "auto", workers_per_node=section.ray.workers_per_node)
    except ConfigError as error:
        resolver.note(error)
        return RayConfig()
