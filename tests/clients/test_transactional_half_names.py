"""The README's half messages, run as they stand there: a payment whose producer died is sent again, and told once."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from fencepost.clients import transactional
from fencepost.clients.transactional import Verdict, half_messages

README = Path(transactional.__file__).with_name("README.md").read_text()
DOCSTRING = str(half_messages.__doc__)
EXAMPLE = re.compile(r"```python\n((?:(?!```).)*class Payments.*?)```", re.DOTALL)


class AlreadyPaid(Exception):
    pass


class Died(BaseException):
    pass


class Database:
    """Of each payment one row at most, with what else was stored in it."""

    def __init__(self) -> None:
        self.rows: dict[str, set[str]] = {}

    @contextmanager
    def transaction(self) -> Iterator["Database"]:
        yield self

    def insert_payment(self, payment: str, **stored: str) -> None:
        if payment in self.rows:
            raise AlreadyPaid
        self.rows[payment] = {payment, *stored.values()}

    def has_attempt(self, name: str) -> bool:
        return any(name in row for row in self.rows.values())


class Prepared:
    """A HalfMessageProducer as far as an example goes: what was sent, and how it ended; it dies when it is told to."""

    dies = False
    ended: dict[str, list[Verdict]]
    last: "Prepared"

    def __init__(self, *_: Any) -> None:
        Prepared.last = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, _topic: str, *, half_id: str, argument: Any, **_message: Any) -> None:
        ended = Prepared.ended.setdefault(half_id, [])
        if Prepared.dies:
            raise Died
        ended.append(self.execute_local_transaction(half_id, argument))  # type: ignore[attr-defined]

    def check(self, half_id: str) -> Verdict:
        found: Verdict = self.check_local_transaction(half_id)  # type: ignore[attr-defined]
        return found


def test_a_payment_that_is_sent_again_after_its_producer_died_is_committed_once() -> None:
    """The check of the attempt that died is answered by the row of the other one, if both are named after the payment."""
    (example,) = EXAMPLE.findall(README)
    database = Database()
    names = {
        "HalfMessageProducer": Prepared,
        "AdminApi": lambda *_: None,
        "Verdict": Verdict,
        "database": database,
        "AlreadyPaid": AlreadyPaid,
        "payment": SimpleNamespace(id="4711", message=lambda: b"paid"),
    }
    run = re.sub(r"from fencepost\S* import .*\n", "", example)
    Prepared.ended = {}
    Prepared.dies = True
    with pytest.raises(Died):
        exec(run, names)
    Prepared.dies = False
    for _ in range(2):
        exec(run, names)
    (first, second, third) = Prepared.ended
    assert Prepared.last.check(first) is Verdict.UNKNOWN
    assert Prepared.last.check(second) is Verdict.COMMIT
    assert Prepared.ended == {first: [], second: [Verdict.COMMIT], third: [Verdict.ROLLBACK]}


@pytest.mark.parametrize("text", [README, DOCSTRING], ids=["README", "docstring"])
def test_no_example_names_a_half_message_after_what_it_is_about(text: str) -> None:
    names = re.findall(r"half_id=(f?\"[^\"]*\")", text)
    assert names
    assert all("uuid4()" in name for name in names), names
