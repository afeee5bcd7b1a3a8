"""Decides which hosts and addresses `web_fetch` may connect to.

The owner of a host name can point it at this machine or the local network. So the check covers the
address of the connection, too.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence


class Resolve(Protocol):
    """Resolves a host to its addresses; raises OSError."""

    async def __call__(self, host: str, port: int, /) -> list[str]: ...


async def system_resolve(host: str, port: int, /) -> list[str]:
    """Resolve a host with the resolver of the system."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv4 addresses in IPv6 form, which a NAT64 gateway translates.
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Metadata services of AWS, Google, Alibaba, Oracle and Azure, in addition to link-local addresses.
_CLOUD_ADDRESSES: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    )
)
_MAX_SHOWN_HOSTS: Final = 8


class WebProblem(Exception):
    """A page cannot be fetched; the message is for the model."""


class AllowedHosts:
    """The allowed hosts: names, `*.example.org` for all subdomains, `*` for all hosts."""

    def __init__(self, patterns: Sequence[str]) -> None:
        plain = [pattern.lower().strip("[]") for pattern in patterns]
        self._names = frozenset(pattern for pattern in plain if not pattern.startswith("*"))
        self._endings = tuple(pattern[1:] for pattern in plain if pattern.startswith("*."))
        self._is_any = "*" in plain
        self.summary = ", ".join(patterns[:_MAX_SHOWN_HOSTS])
        """The patterns, for the model."""
        if len(patterns) > _MAX_SHOWN_HOSTS:
            self.summary += f" and {len(patterns) - _MAX_SHOWN_HOSTS} more"

    def refuse_host(self, host: str) -> None:
        """Raise WebProblem if no pattern matches the host."""
        if not (self._is_any or host in self._names or host.endswith(self._endings)):
            raise WebProblem(f"{host} is not an allowed host; allowed: {self.summary}")

    def reachable(self, host: str, addresses: Sequence[str]) -> list[str]:
        """The allowed addresses of the host; raises WebProblem if there is none.

        Private addresses are allowed only if the configuration contains the full host name.
        Addresses of cloud metadata services are allowed only if it contains the address itself.
        """
        allowed = [each for each in addresses if self._may_reach(host, each)]
        if not allowed:
            resolved = ", ".join(addresses[:3]) or "nothing"
            raise WebProblem(
                f"{host} resolves to {resolved}, which is not a public address; "
                "such a host must be allowed by its full name"
            )
        return allowed

    def _may_reach(self, host: str, text: str) -> bool:
        address = _innermost(ipaddress.ip_address(text))
        if _is_public(address):
            return True
        if host not in self._names or address.is_multicast or address.is_unspecified:
            return False
        return not _is_metadata_service(address) or _is_address(host)


def _innermost(address: _Address) -> _Address:
    """The IPv4 address that is embedded in an IPv6 address, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        # Deprecated and reported as global, but some networks still use them.
        return False
    is_special = address.is_multicast or address.is_reserved or _is_metadata_service(address)
    return address.is_global and not is_special


def _is_metadata_service(address: _Address) -> bool:
    return address.is_link_local or address in _CLOUD_ADDRESSES


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
