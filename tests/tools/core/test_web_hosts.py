"""Allowed hosts and addresses."""

import pytest

from nacre.tools.core.web_hosts import AllowedHosts, WebProblem


@pytest.mark.parametrize(
    ("pattern", "host", "is_allowed"),
    [
        ("example.org", "example.org", True),
        ("Example.org", "example.org", True),
        ("example.org", "www.example.org", False),
        ("example.org", "example.org.evil.net", False),
        ("example.org", "evilexample.org", False),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("*", "anything.net", True),
        ("[::1]", "::1", True),
    ],
)
def test_a_host_has_to_fit_a_pattern(pattern: str, host: str, is_allowed: bool) -> None:
    hosts = AllowedHosts([pattern])
    if is_allowed:
        hosts.refuse_host(host)
    else:
        with pytest.raises(WebProblem, match=r"is not an allowed host; allowed: "):
            hosts.refuse_host(host)


INNER = [
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "172.16.0.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fec0::1",
]
NEVER_BY_NAME = [
    "169.254.169.254",
    "fe80::1",
    "::ffff:169.254.169.254",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "::ffff:168.63.129.16",
]
NEVER = ["0.0.0.0", "::", "224.0.0.1", "ff02::1"]


@pytest.mark.parametrize("address", [*INNER, *NEVER_BY_NAME, *NEVER])
@pytest.mark.parametrize("pattern", ["*", "*.example.org"])
def test_a_pattern_reaches_no_inner_address(pattern: str, address: str) -> None:
    with pytest.raises(WebProblem, match="is not a public address"):
        AllowedHosts([pattern]).reachable("www.example.org", [address])


@pytest.mark.parametrize("address", INNER)
def test_a_host_that_is_named_may_have_an_inner_address(address: str) -> None:
    hosts = AllowedHosts(["wiki.corp"])
    assert hosts.reachable("wiki.corp", [address]) == [address]


@pytest.mark.parametrize("address", [*NEVER_BY_NAME, *NEVER])
def test_no_name_leads_to_the_secrets_of_a_cloud(address: str) -> None:
    with pytest.raises(WebProblem, match="is not a public address"):
        AllowedHosts(["wiki.corp"]).reachable("wiki.corp", [address])


def test_an_address_that_is_named_may_be_reached() -> None:
    hosts = AllowedHosts(["169.254.169.254"])
    assert hosts.reachable("169.254.169.254", ["169.254.169.254"]) == ["169.254.169.254"]


def test_only_the_public_ones_of_several_addresses_are_used() -> None:
    found = AllowedHosts(["*"]).reachable(
        "example.org", ["10.0.0.1", "93.184.216.34", "2606:2800:220:1::1"]
    )
    assert found == ["93.184.216.34", "2606:2800:220:1::1"]


def test_of_many_patterns_the_first_are_told() -> None:
    hosts = AllowedHosts([f"host{number}.net" for number in range(20)])
    assert hosts.summary.endswith("host7.net and 12 more")
