"""Decides which hosts and addresses may be fetched from.

A name says little about where it leads: its owner may point it at this machine, or at the network
behind it. So the address is looked at that is really connected to.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence


class Resolve(Protocol):
    """The addresses of a host; raises OSError when it has none."""

    async def __call__(self, host: str, port: int, /) -> list[str]: ...


async def system_resolve(host: str, port: int, /) -> list[str]:
    """As the system knows it."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv4 addresses within IPv6 ones, where a gateway translates.
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Where machines in a cloud get their credentials, besides the addresses of a link: of AWS, Google,
# Alibaba, Oracle and Azure.
_CLOUD_ADDRESSES: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    )
)
_MAX_SHOWN: Final = 8


class WebProblem(Exception):
    """A page cannot be fetched; the message is for the model."""


class AllowedHosts:
    """The hosts of the configuration: names, `*.example.org` for all below one, `*` for all."""

    def __init__(self, patterns: Sequence[str]) -> None:
        plain = [pattern.lower().strip("[]") for pattern in patterns]
        self._names = frozenset(pattern for pattern in plain if not pattern.startswith("*"))
        self._endings = tuple(pattern[1:] for pattern in plain if pattern.startswith("*."))
        self._is_any = "*" in plain
        self.shown = ", ".join(patterns[:_MAX_SHOWN])
        """For the model."""
        if len(patterns) > _MAX_SHOWN:
            self.shown += f" and {len(patterns) - _MAX_SHOWN} more"

    def refuse_host(self, host: str) -> None:
        """Raises WebProblem for a host that no pattern fits."""
        if not (self._is_any or host in self._names or host.endswith(self._endings)):
            raise WebProblem(f"{host} is not an allowed host; allowed: {self.shown}")

    def reachable(self, host: str, addresses: Sequence[str]) -> list[str]:
        """The addresses of the host that may be connected to; raises WebProblem if none may.

        Addresses within a network only for a host that is named itself, not by a pattern. Those
        where clouds keep their secrets only if the address is what is named.
        """
        fitting = [each for each in addresses if self._may_reach(host, each)]
        if not fitting:
            found = ", ".join(addresses[:3]) or "nothing"
            raise WebProblem(
                f"{host} leads to {found}, which is not a public address; "
                "such a host has to be allowed by its full name"
            )
        return fitting

    def _may_reach(self, host: str, text: str) -> bool:
        address = _innermost(ipaddress.ip_address(text))
        if _is_public(address):
            return True
        if host not in self._names or address.is_multicast or address.is_unspecified:
            return False
        return not _is_of_cloud(address) or _is_address(host)


def _innermost(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        # Given up long ago, and taken for public ever since; some networks still use them.
        return False
    is_special = address.is_multicast or address.is_reserved or _is_of_cloud(address)
    return address.is_global and not is_special


def _is_of_cloud(address: _Address) -> bool:
    return address.is_link_local or address in _CLOUD_ADDRESSES


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
