"""What is in the topics at the end, compared with SQL over the database, record by record."""

import json
from collections import Counter
from decimal import Decimal
from typing import Any, NamedTuple

from fencepost.clients.binlog.reading import read_to_end
from orders_database import ALERT_FROM, REVENUE, Customers, Shop

EXAMPLES = 3  # of what is wrong, in a sentence


class Found(NamedTuple):
    key: str | None
    value: dict[str, Any] | None
    time_s: float


def committed(bootstrap: str, topic: str) -> list[Found]:
    """All that a `read_committed` reader sees; an open transaction in the way is an error."""
    found = []
    for each in read_to_end({"bootstrap.servers": bootstrap}, topic):
        key, value, time_s = each.key(), each.value(), each.timestamp()[1] / 1_000
        record = Found(key and key.decode(), None if value is None else json.loads(value), time_s)
        found.append((each.partition(), each.offset(), record))
    return [each[2] for each in sorted(found, key=lambda each: each[:2])]


def wrong_orders(found: list[Found], shop: Shop, customers: Customers) -> list[str]:
    """The binlog's part: each change once, and put together they are the table."""
    wrong = []
    events = [each.value for each in found if each.value is not None]
    places = Counter((each["source"]["gtid"], each["source"]["row"]) for each in events)
    twice = [place for place in places if places[place] > 1]
    if twice:
        wrong.append(
            f"orders: {len(twice)} changes are there more than once, such as {twice[:EXAMPLES]}"
        )
    kinds = Counter(each["op"] for each in events)
    counts = (kinds["r"] + kinds["c"], kinds["u"])
    if counts != (customers.inserted, customers.updated):
        wrong.append(
            f"orders: {counts[0]} inserts and {counts[1]} updates are there, {customers.inserted} and {customers.updated} were made"
        )
    table = {}
    for each in events:
        table[each["after"]["id"]] = (each["after"]["amount"], each["after"]["status"])
    wanted = {
        number: (str(amount), status)
        for number, amount, status in shop.rows("SELECT id, amount, status FROM orders")
    }
    wrong += differences("orders put together", table, wanted)
    return wrong


def wrong_revenue(found: list[Found], shop: Shop) -> list[str]:
    """Each sum's last record is SQL's; and no record of it comes twice: each has seen more changes than the one before."""
    wrong, last = [], {}
    for each in found:
        assert each.key is not None and each.value is not None
        before = last.get(each.key)
        if before is not None and each.value["changes"] <= before["changes"]:
            wrong.append(f"revenue of {each.key}: {before} is followed by {each.value}")
        last[each.key] = each.value
    sums = {
        key: (Decimal(last[key]["revenue"]), last[key]["orders"], last[key]["changes"])
        for key in last
    }
    wanted = {
        f"{region}|{window}": (revenue, int(orders), int(changes))
        for region, window, revenue, orders, changes in shop.rows(REVENUE)
    }
    return wrong[:EXAMPLES] + differences("revenue", sums, wanted)


def wrong_alerts(found: list[Found], shop: Shop) -> list[str]:
    seen = Counter(int(each.key or 0) for each in found)
    large = shop.rows(f"SELECT id FROM orders WHERE amount >= {ALERT_FROM}")
    return differences("alerts", dict(seen), {number: 1 for (number,) in large})


def differences(what: str, found: dict[Any, Any], wanted: dict[Any, Any]) -> list[str]:
    said = []
    missing = sorted(set(wanted) - set(found))
    extra = sorted(set(found) - set(wanted))
    other = sorted(key for key in wanted if key in found and found[key] != wanted[key])
    if missing:
        said.append(f"{what}: {len(missing)} are missing, such as {missing[:EXAMPLES]}")
    if extra:
        said.append(f"{what}: {len(extra)} are not in the database, such as {extra[:EXAMPLES]}")
    said += [f"{what}: {key} is {found[key]}, SQL says {wanted[key]}" for key in other[:EXAMPLES]]
    return said
