"""Who does not hear whom, as rules of iptables in the network namespace of a container."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from .proxy import CLIENTS

Addresses = Mapping[str, str]  # by network


def addresses_of(inspected: Mapping[str, Any]) -> Addresses:
    networks = inspected["NetworkSettings"]["Networks"]
    return {name: each["IPAddress"] for name, each in networks.items()}


def drops(
    heard: Sequence[int],
    said: Sequence[int],
    addresses: Mapping[int, Addresses],
    node: int,
    clients: str,
) -> list[str]:
    """Whom this node does not hear (`heard`), dropped as it comes in; and clients that do not hear it (`said`), as it goes out.

    `clients` names the network that clients are on.
    """
    unheard = [known for other in heard if other != CLIENTS for known in addresses[other].values()]
    lines = [f"-A INPUT -s {address} -j DROP" for address in unheard if address]
    if mine := addresses[node].get(clients):
        if CLIENTS in heard:
            lines.append(f"-A INPUT -d {mine} -j DROP")
        if CLIENTS in said:
            lines.append(f"-A OUTPUT -s {mine} -j DROP")
    return lines


def apply(pid: int, lines: Sequence[str]) -> None:
    """In place of whatever is in force in the namespace of that process."""
    begun = ["*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
    command = ["nsenter", "--target", str(pid), "--net", "iptables-restore"]
    done = subprocess.run(
        command,
        input="\n".join([*begun, *lines, "COMMIT", ""]),
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr}")
