import asyncio
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base.host_names import why_no_host

BAD = {
    "": "it is empty",
    "a..b": "a part between its dots is empty",
    ".a": "a part between its dots is empty",
    "x" * 64: "over 63",
    f"a.{'x' * 64}.b": "over 63",
    ".".join(["x" * 60] * 5): "over 253",
    "a b": "' '",
    "a/b": "'/'",
    "node\n": r"'\n'",
    "a:b": "':'",
    "me@node": "'@'",
    "node\0": r"'\x00'",
    "\ud800": "no host name",
}


@pytest.mark.parametrize("host", BAD)
def test_a_name_that_no_name_server_can_be_asked_for_is_refused_and_named(host: str) -> None:
    why = why_no_host(host)
    assert why is not None and BAD[host] in why and repr(host)[:40] in why and len(why) < 400


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "node-2",
        "node_2",
        "a.b.c",
        "a.b.",
        "10.0.0.1",
        "::1",
        "fe80::1%eth0",
        "knöten.de",
    ],
)
def test_names_and_addresses_as_they_are_used_are_taken(host: str) -> None:
    assert why_no_host(host) is None


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_what_is_taken_can_be_asked_for(loop: Any) -> None:
    """Whatever comes of it is the name server's answer; a name that can't be asked for is another error, which ended nodes."""

    async def main() -> None:
        for host in ("localhost", "10.0.0.1", "::1"):
            await asyncio.get_running_loop().getaddrinfo(host, 1)

    loop(main())
