"""What the admin door answers: a status and an object, and for errors what happened and what to do next."""

from typing import Any, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode

E = ErrorCode


class Answer(NamedTuple):
    status: int
    fields: dict[str, Any]


# Kafka's code -> the status, and what whoever asked can do.
_NEXT: Final[dict[ErrorCode, tuple[int, str]]] = {
    E.invalid_request: (400, "Correct the request; node/admin/README.md has all of them."),
    E.transactional_id_not_found: (404, "List what there is: GET /v1/checks."),
    E.invalid_producer_id_mapping: (
        409,
        "Start the member anew (init_transactions) and let it do its work again.",
    ),
    E.producer_fenced: (
        409,
        "Another one works in its name now: end this one, and ask what was decided.",
    ),
    E.invalid_txn_state: (409, "Ask how it stands, and go on from there."),
    E.unsupported_version: (409, "Raise the cluster's feature transaction.version to 2."),
    E.concurrent_transactions: (409, "Ask again when the transaction before it has ended."),
    E.message_too_large: (413, "Send less at a time."),
    E.throttling_quota_exceeded: (429, "Ask again later, or from fewer clients."),
    E.coordinator_not_available: (503, "Ask again: every request may be repeated."),
    E.coordinator_load_in_progress: (503, "Ask again: every request may be repeated."),
    E.not_coordinator: (503, "Ask again: every request may be repeated."),
    E.request_timed_out: (503, "Ask again: every request may be repeated."),
    E.cluster_authorization_failed: (403, "Ask somebody who may."),
    E.sasl_authentication_failed: (
        401,
        "Send `Authorization: Bearer TOKEN`, with the nodes' admin.token.",
    ),
}
_OTHERWISE: Final = (500, "See the node's log.")
# Not outcomes: whoever asks again soon, or elsewhere, is answered.
PASSING: Final = (
    E.not_coordinator,
    E.coordinator_load_in_progress,
    E.coordinator_not_available,
    E.request_timed_out,
)


def refused(code: ErrorCode, message: str, next_step: str = "") -> Answer:
    status, usual = _NEXT.get(code, _OTHERWISE)
    fields = {"error": code.name.upper(), "message": message, "next_step": next_step or usual}
    return Answer(status, fields)


def bad_input(message: str) -> Answer:
    return refused(E.invalid_request, message)
