"""Transaction groups at the admin door."""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.added_service import AddedService
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal, Undecided
from fencepost.txn.transactions.group_commit_records import NO_FLOOR, GroupDecided

from . import inputs
from .answers import Answer, refused

Args = dict[str, Any]
MEMBERS_MAX: Final = 10_000
MEMBERS_SHOWN: Final = 1_000
NAMED_MAX: Final = 20  # in a sentence
DECISIONS_SHOWN, DECISIONS_MAX = 20, 1_000
COMMIT, ABORT = "commit", "abort"


def read_end(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "group", "number", "outcome", "members", "note")
    members = inputs.table(fields, "members", most=MEMBERS_MAX)
    # Left out where there is none: what is sent on to a coordinator of an older build is what it knows.
    noted = {"note": inputs.name(fields, "note")} if "note" in fields else {}
    return {
        "group": inputs.group_name(fields),
        "number": inputs.integer(fields, "number"),
        "outcome": inputs.choice(fields, "outcome", (COMMIT, ABORT)),
        "members": {
            inputs.name({"a member's name": name}, "a member's name"): _identity(
                name, members[name]
            )
            for name in sorted(members)
        },
        **noted,
    }


def _identity(name: str, fields: Mapping[str, Any]) -> dict[str, int]:
    try:
        inputs.allow(fields, "producer_id", "producer_epoch")
        return read_identity(fields)
    except inputs.BadInput as bad:
        raise inputs.BadInput(f"member {name[:60]}: {bad}") from None


def read_identity(fields: Mapping[str, Any]) -> dict[str, int]:
    return {
        "producer_id": inputs.integer(fields, "producer_id"),
        "producer_epoch": inputs.integer(fields, "producer_epoch", most=inputs.EPOCH_MAX),
    }


def read_decision(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "group", "number")
    return {"group": inputs.group_name(fields), "number": inputs.integer(fields, "number")}


def read_group(fields: Mapping[str, Any]) -> Args:
    inputs.allow(fields, "group", "limit", "members")
    return {
        "group": inputs.group_name(fields),
        "limit": inputs.integer(fields, "limit", most=DECISIONS_MAX, default=DECISIONS_SHOWN),
        "members": inputs.integer(fields, "members", most=MEMBERS_MAX, default=MEMBERS_SHOWN),
    }


async def end(service: AddedService, args: Args) -> Answer | ErrorCode:
    wanted, named = args["outcome"], args["members"]
    members = {name: Identity(**named[name]) for name in named}
    ended = await service.end_group(
        args["group"],
        args["number"],
        commit=wanted == COMMIT,
        members=members,
        note=args.get("note", ""),
    )
    if isinstance(ended, ErrorCode):
        return ended
    if isinstance(ended, Refusal):
        return refused(ended.code, ended.message)
    decision = ended.decision
    fields = shown(decision) | {
        "is_new": ended.is_new,
        "as_wanted": outcome_of(decision) == wanted and _identities(decision) == members,
    }
    if not ended.is_new:
        fields["message"] = _decided_before(decision, wanted, members)
    return Answer(200, fields)


def _decided_before(decision: GroupDecided, wanted: str, members: Mapping[str, Identity]) -> str:
    said = (
        f"Number {decision.number} of {decision.group} had been decided before: {outcome_of(decision)}. "
        "This request changed nothing."
    )
    if outcome_of(decision) != wanted:
        said += f" It wanted {wanted}."
    found = _identities(decision)
    if found.keys() != members.keys():
        said += f" The decision was for {', '.join(list(found)[:NAMED_MAX]) or 'no members'}."
    elif found != members:
        anew = [each for each in found if found[each] != members[each]][:NAMED_MAX]
        said += f" Since then these were started anew: {', '.join(anew)}. What they wrote now is not in it: abort it."
    return said


async def decision(service: AddedService, args: Args) -> Answer | ErrorCode:
    found = await service.group_decision(args["group"], args["number"])
    if isinstance(found, ErrorCode):
        return found
    if isinstance(found, GroupDecided):
        return Answer(200, shown(found))
    return Answer(200, {"group": args["group"], "number": args["number"], **_undecided(found)})


def _undecided(found: Undecided) -> dict[str, Any]:
    if found.forgotten:
        return {
            "outcome": "forgotten",
            "message": "It is too long ago: what was decided, if anything, is not known any more, and "
            "it will not be decided again.",
        }
    return {
        "outcome": "undecided",
        "message": "Nothing has been decided. An end that is still under way may decide it yet: start "
        "the members anew (init_transactions), and it is refused.",
    }


async def describe(service: AddedService, args: Args) -> Answer | ErrorCode:
    view = await service.describe_group(
        args["group"], decisions_max=args["limit"], members_max=args["members"]
    )
    if isinstance(view, ErrorCode):
        return view
    fields: dict[str, Any] = {
        "group": view.group,
        "decisions": [shown(each) for each in view.decisions],
        "members": {
            each.member: {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "state": each.phase,
            }
            for each in view.members
        },
        "members_left_out": view.members_left_out,
    }
    if view.floor != NO_FLOOR:
        fields["forgotten_up_to"] = view.floor
    return Answer(200, fields)


def outcome_of(decision: GroupDecided) -> str:
    return COMMIT if decision.commit else ABORT


def _identities(decision: GroupDecided) -> dict[str, Identity]:
    """Who wrote under a name: a member that was started anew is another, with other rows."""
    return {
        each.member: Identity(each.producer_id, each.producer_epoch) for each in decision.members
    }


def shown(decision: GroupDecided) -> dict[str, Any]:
    noted = {"note": decision.note} if decision.note else {}
    return {
        "group": decision.group,
        "number": decision.number,
        "outcome": outcome_of(decision),
        "decided_ms": decision.decided_ms,
        "members": {
            each.member: {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
            }
            for each in decision.members
        },
        **noted,
    }
