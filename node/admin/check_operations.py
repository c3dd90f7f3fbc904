"""Half messages and their checks at the admin door."""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.added_service import AddedService
from fencepost.txn.transactions.check_back_commands import Attempt, HalfAnswered, Verdict
from fencepost.txn.transactions.check_back_machine import PRODUCER
from fencepost.txn.transactions.check_back_records import HalfMessage, HalfState
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from fencepost.txn.transactions.ids import transactional_partition_key

from . import inputs
from .answers import Answer, refused
from .group_operations import read_identity

Args = dict[str, Any]
CHECKS_MAX: Final = 100  # in one answer
DELIVERED_MAX: Final = 1_000
HALVES_SHOWN, HALVES_MAX = 1_000, 10_000
VERDICTS: Final = tuple(verdict.value for verdict in Verdict)
DECISIONS: Final = (Verdict.COMMIT.value, Verdict.ROLLBACK.value)
STATES: Final = {
    HalfState.WAITING: "waiting",
    HalfState.PARKED: "parked",
    HalfState.COMMITTED: "committed",
    HalfState.ROLLED_BACK: "rolled_back",
}


def read_prepare(fields: Mapping[str, Any]) -> Args:
    inputs.allow(
        fields, "transactional_id", "producer_id", "producer_epoch", "half_id", "half_number"
    )
    number = inputs.integer(fields, "half_number", default=0)
    return {
        "transactional_id": inputs.name(fields, "transactional_id"),
        "half_id": inputs.name(fields, "half_id"),
        **read_identity(fields),
        **({"half_number": number} if number else {}),
    }


def read_poll(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "group", "member", "wait_ms_max", "checks_max", "delivered")
    return {
        "group": inputs.group_name(fields),
        "member": inputs.name(fields, "member"),
        "wait_ms_max": inputs.integer(
            fields, "wait_ms_max", most=inputs.WAIT_MS_MAX, default=20_000
        ),
        "checks_max": inputs.integer(fields, "checks_max", most=CHECKS_MAX, default=10),
        "delivered": [
            _attempt(row) for row in inputs.rows(fields, "delivered", most=DELIVERED_MAX)
        ],
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "transactional_id": inputs.name(row, "transactional_id"),
        "half_id": inputs.name(row, "half_id"),
        "attempt": inputs.integer(row, "attempt"),
    }


def read_answer(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "transactional_id", "half_id", "attempt", "verdict", "member")
    return {
        "transactional_id": inputs.name(fields, "transactional_id"),
        "half_id": inputs.name(fields, "half_id"),
        "attempt": inputs.integer(fields, "attempt", default=0),
        "verdict": inputs.choice(fields, "verdict", VERDICTS),
        "member": inputs.name(fields, "member"),
    }


def read_decide(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "transactional_id", "half_id", "outcome", "by")
    return {
        "transactional_id": inputs.name(fields, "transactional_id"),
        "half_id": inputs.name(fields, "half_id"),
        "outcome": inputs.choice(fields, "outcome", DECISIONS),
        "by": inputs.name(fields, "by", default="a person"),
    }


def read_release(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "transactional_id", "half_id")
    return {
        "transactional_id": inputs.name(fields, "transactional_id"),
        "half_id": inputs.name(fields, "half_id"),
    }


def read_describe(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "transactional_id")
    return {"transactional_id": inputs.name(fields, "transactional_id")}


def read_list(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "parked", "limit")
    limit = inputs.integer(fields, "limit", least=1, most=HALVES_MAX, default=HALVES_SHOWN)
    return {"parked": inputs.flag(fields, "parked"), "limit": limit}


async def prepare(service: AddedService, args: Args) -> Answer | ErrorCode:
    identity = Identity(args["producer_id"], args["producer_epoch"])
    answered = await service.prepare(
        args["transactional_id"], identity, args["half_id"], args.get("half_number", 0)
    )
    return _answered(answered)


async def poll(service: AddedService, args: Args) -> Answer | ErrorCode:
    attempts = await service.poll_checks(
        args["group"],
        args["member"],
        wait_ms_max=args["wait_ms_max"],
        checks_max=args["checks_max"],
        delivered=tuple(
            Attempt(row["transactional_id"], row["half_id"], row["attempt"])
            for row in args["delivered"]
        ),
    )
    if isinstance(attempts, ErrorCode):
        return attempts
    if isinstance(attempts, Refusal):
        return refused(attempts.code, attempts.message)
    rows = [
        {"transactional_id": each.transactional_id, "half_id": each.half_id, "attempt": each.number}
        for each in attempts
    ]
    return Answer(200, {"group": args["group"], "checks": rows})


async def answer(service: AddedService, args: Args) -> Answer | ErrorCode:
    verdict, attempt = Verdict(args["verdict"]), args["attempt"]
    answered = await service.answer_check(
        args["transactional_id"],
        args["half_id"],
        verdict,
        by=f"checker {args['member']}" if attempt else PRODUCER,  # who was asked names the attempt
        attempt=attempt,
    )
    return _answered(answered, verdict)


async def decide(service: AddedService, args: Args) -> Answer | ErrorCode:
    verdict = Verdict(args["outcome"])
    answered = await service.answer_check(
        args["transactional_id"], args["half_id"], verdict, by=args["by"]
    )
    return _answered(answered, verdict)


async def release(service: AddedService, args: Args) -> Answer | ErrorCode:
    return _answered(await service.release(args["transactional_id"], args["half_id"]))


async def describe(service: AddedService, args: Args) -> Answer | ErrorCode:
    return _answered(await service.describe_half(args["transactional_id"]))


async def list_all(service: AddedService, args: Args) -> Answer | ErrorCode:
    found = await service.halves(parked_only=args["parked"], halves_max=args["limit"])
    if isinstance(found, ErrorCode):
        return found
    fields = {
        "half_messages": [shown(each) for each in found.halves],
        "partitions": found.partitions,
    }
    return Answer(200, fields)


def _answered(
    answered: HalfAnswered | Refusal | ErrorCode, verdict: Verdict = Verdict.UNKNOWN
) -> Answer | ErrorCode:
    if isinstance(answered, ErrorCode):
        return answered
    if isinstance(answered, Refusal):
        return refused(answered.code, answered.message)
    half = answered.half
    fields = shown(half) | {"is_new": answered.is_new}
    if half.is_decided and verdict is not Verdict.UNKNOWN:
        wanted = HalfState.COMMITTED if verdict is Verdict.COMMIT else HalfState.ROLLED_BACK
        fields["as_wanted"] = half.state is wanted
        if half.state is not wanted:
            fields["message"] = (
                f"It had been decided before, by {half.decided_by}: {STATES[half.state]}. This request "
                "changed nothing."
            )
    return Answer(200, fields)


def shown(half: HalfMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "transactional_id": half.transactional_id,
        "group": transactional_partition_key(half.transactional_id),
        "half_id": half.half_id,
        "state": STATES[half.state],
        "producer_id": half.producer_id,
        "producer_epoch": half.producer_epoch,
        "prepared_ms": half.prepared_ms,
        "checks": half.checks,
        "changed_ms": half.changed_ms,
    }
    if half.state is HalfState.WAITING:
        fields["next_check_ms"] = half.next_check_ms
    if half.is_decided:
        fields["decided_by"] = half.decided_by
    return fields
