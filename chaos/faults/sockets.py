"""Who listens and who dials on this machine, asked of the kernel (sock_diag(7)). Linux only.

/proc/net/tcp says the same, but for every connection of the machine at once: with 3,000 of them 17 ms a question.
"""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Final

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
LISTEN: Final = 1 << 10  # TCPF_LISTEN
ANY_STATE: Final = 0xFFFFFFFF
HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
REQUEST: Final = struct.Struct("=BBBxI")  # inet_diag_req_v2 up to its sockid
PORTS: Final = struct.Struct("!HH")
INODE_AT: Final = 68  # in inet_diag_msg
NO_COOKIE: Final = struct.pack("=III", 0, ANY_STATE, ANY_STATE)  # any interface, any cookie
LOOPBACK: Final = socket.inet_aton("127.0.0.1") + bytes(12)
ANSWER_MAX: Final = 1 << 16


def _ask(family: int, states: int, flags: int, ports: tuple[int, int]) -> Iterator[bytes]:
    """An inet_diag_msg for each socket; of one that is looked for by its ports, that alone."""
    ends = PORTS.pack(*ports) + LOOPBACK + LOOPBACK + NO_COOKIE
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 0, states) + ends
    size = HEADER.size + len(request)
    header = HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        while True:
            data = kernel.recv(ANSWER_MAX)
            while data:
                length, kind, *_ = HEADER.unpack_from(data)
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    return
                yield data[HEADER.size : length]
                data = data[length + 3 & ~3 :]
            if not flags & NLM_F_DUMP:
                return


def listening_ports() -> frozenset[int]:
    found = (
        message
        for family in (socket.AF_INET, socket.AF_INET6)  # a JVM's are of the second
        for message in _ask(family, LISTEN, NLM_F_DUMP, (0, 0))
    )
    return frozenset(PORTS.unpack_from(message, 4)[0] for message in found)


def dialing_process(port: int, to_port: int, pids: Mapping[int, int]) -> int | None:
    """Whose connection it is that comes from `port`: the number of that process among `pids`, or None."""
    for message in _ask(socket.AF_INET, ANY_STATE, 0, (port, to_port)):
        (inode,) = struct.unpack_from("=I", message, INODE_AT)
        return _holder(f"socket:[{inode}]", pids)
    return None


def _holder(link: str, pids: Mapping[int, int]) -> int | None:
    for number, pid in pids.items():
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a Path for each of a thousand is slow
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name in names:
            try:
                if os.readlink(f"{folder}/{name}") == link:  # noqa: PTH115
                    return number
            except (FileNotFoundError, ProcessLookupError):
                continue
    return None
