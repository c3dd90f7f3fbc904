"""What a planted bug is, all of them by name, and how one is put into the nodes of a simulation and taken out again.

INVARIANT  the product has no switch for any of this: a bug is a patch from here, gone when its `with` is left.
PREVENTS   a flag in the product that somebody sets; a checker that has never seen what it is for.
PROVED BY  tests/chaos/test_planted.py::test_a_bug_is_gone_when_its_run_is_over

A bug is a function that is given a `Patch`; its docstring says in one sentence what it breaks.
"""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

Words = tuple[str, ...]
# The modules that hold bugs; each registers its own when it is imported.
MODULES: Final = (
    "replication_bugs",
    "metadata_bugs",
    "transaction_bugs",
    "group_bugs",
    "disk_bugs",
    "compaction_bugs",
    "churn_bugs",
    "deletion_bugs",
    "expiry_bugs",
    "reading_bugs",
    "half_message_bugs",
)


PLACES: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Patch:
    """Replaces attributes of classes and modules, and puts back what was there."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, new: Any) -> None:
        """`owner.name` is `new` from now on; names that are not there, or are called in another way, are a mistake of the bug's."""
        before = vars(owner)[name]
        _check_is_called_alike(f"{owner.__name__}.{name}", before, new)
        self._before.append((owner, name, before))
        setattr(owner, name, new)

    def take_out(self) -> None:
        while self._before:
            owner, name, before = self._before.pop()
            setattr(owner, name, before)


def _check_is_called_alike(what: str, before: Any, new: Any) -> None:
    """TypeError where a call of what was there would not be one of what comes: that would break every run, and show nothing."""
    if not (inspect.isfunction(before) and inspect.isfunction(new)):
        return
    takes = inspect.signature(before).parameters.values()
    needed = [each for each in takes if each.default is each.empty]
    for called in (needed, takes):
        places = [None for each in called if each.kind in PLACES]
        names = {each.name: None for each in called if each.kind is each.KEYWORD_ONLY}
        try:
            inspect.signature(new).bind(*places, **names)
        except TypeError as error:
            raise TypeError(
                f"{what} is called with other arguments than the bug has: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class Bug:
    """`seen_by` are the rules of which one must be broken first; `seeds` within how many it must be.

    An `is_open` one nothing has seen in so many: a workload or a fault is missing. It is hunted only by its name.
    """

    name: str
    breaks: str
    plant: Callable[[Patch], None]
    seen_by: Words
    campaign: str
    faults: Words
    workloads: Words
    protocol: str
    config: Words
    seconds: float
    seeds: int
    is_open: bool


BUGS: Final[dict[str, Bug]] = {}


def bug(
    *,
    seen_by: str,
    campaign: str,
    faults: str = "",
    workloads: str = "",
    protocol: str = "",
    config: str = "",
    seconds: float = 5.0,
    seeds: int = 10,
    is_open: bool = False,
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Registers a bug under its function's name. Words are parted by spaces."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", "-")
        assert name not in BUGS, f"two bugs are called {name}"
        assert plant.__doc__, f"{name} does not say what it breaks"
        BUGS[name] = Bug(
            name,
            plant.__doc__.strip(),
            plant,
            tuple(seen_by.split()),
            campaign,
            tuple(faults.split()),
            tuple(workloads.split()),
            protocol,
            tuple(config.split()),
            seconds,
            seeds,
            is_open,
        )
        return plant

    return register


def all_bugs() -> dict[str, Bug]:
    for each in MODULES:
        importlib.import_module(f".{each}", __package__)
    return BUGS


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug of that name is in every node that runs meanwhile; "" is none."""
    if not name:
        yield
        return
    known = all_bugs()
    if name not in known:
        raise KeyError(f"no bug is called {name!r}: `fencepost sim planted --list` names them")
    patch = Patch()
    try:
        known[name].plant(patch)
        yield
    finally:
        patch.take_out()
