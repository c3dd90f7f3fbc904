"""`request.log`: which clients' requests are logged in full, on every node that has to do with them.

    request.log = api=EndTxn,client=billing-*        either of them
    request.log = all                                everything: for a quiet cluster only

Also what `log.level` may be: settings that are checked when they are set, wherever that is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ..base.errors import ConfigRefused
from ..base.log import parse_levels
from ..wire.versions import ApiKey
from .config_def import ConfigValue

_ALLOWED: Final = (
    "all, or a list of api=NAME, client=CLIENT_ID (with * for any letters) and host=ADDRESS"
)


def _folded(name: str) -> str:
    """EndTxn, end_txn and endtxn are one API."""
    return name.replace("_", "").lower()


_APIS: Final = {_folded(key.name): key for key in ApiKey}


@dataclass(frozen=True, slots=True)
class RequestFilter:
    apis: frozenset[ApiKey] = frozenset()
    clients: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    takes_all: bool = False

    def __bool__(self) -> bool:
        return self.takes_all or bool(self.apis or self.clients or self.hosts)

    def takes(self, api: ApiKey, client_id: str, host: str) -> bool:
        return (
            self.takes_all
            or api in self.apis
            or host in self.hosts
            or any(fnmatchcase(client_id, pattern) for pattern in self.clients)
        )

    @classmethod
    def parse(cls, text: str) -> "RequestFilter":
        """ConfigRefused names the item that is none."""
        apis: list[ApiKey] = []
        clients: list[str] = []
        hosts: list[str] = []
        takes_all = False
        for item in filter(None, (each.strip() for each in text.split(","))):
            kind, _, value = item.partition("=")
            if item == "all":
                takes_all = True
            elif kind == "api" and _folded(value) in _APIS:
                apis.append(_APIS[_folded(value)])
            elif kind == "client" and value:
                clients.append(value)
            elif kind == "host" and value:
                hosts.append(value)
            else:
                raise ConfigRefused(
                    f"Invalid value {text} for configuration request.log: {item!r} is not {_ALLOWED}"
                )
        return cls(frozenset(apis), tuple(clients), frozenset(hosts), takes_all)


def check_request_log(_name: str, value: ConfigValue) -> str | None:
    return _why(lambda: RequestFilter.parse(str(value or "")))


def check_log_level(_name: str, value: ConfigValue) -> str | None:
    return _why(lambda: parse_levels(str(value or "")))


def _why(parse: Callable[[], object]) -> str | None:
    try:
        parse()
    except ConfigRefused as refused:
        return str(refused)
    return None
