"""How the records of transactional workloads are written, apart from the wire: client processes start faster without it."""


def payload(number: int, value: int, extra: int = 0) -> bytes:
    """What a record of these workloads holds: whose it is, which it is, and what the workload wants."""
    return f"{number}/{value}/{extra}".encode()


def key_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
