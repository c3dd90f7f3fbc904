"""Who may do something at the admin door.

INVARIANT  where other machines reach the door nothing but numbers and health is served without the token.
PREVENTS   whoever finds the port deciding other people's transactions.
PROVED BY  tests/node/test_admin_access.py::test_without_the_token_nothing_is_asked_or_done

A door on the loopback asks this machine's own users for nothing, but a page in one's browser may do as if it were one:
its own name resolves to 127.0.0.1 when it asks again (DNS rebinding), and the page's origin is then the door's. The
name stays in the request's Host.
"""

import hmac

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.host_names import is_loopback

from .answers import Answer, refused

E = ErrorCode


class Access:
    """`is_local` is set when the door is opened: only this machine's own users reach it then."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.is_local = True
        self.refused = 0  # who showed none, or a wrong one

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    def is_shown(self, authorization: str) -> bool:
        """Whether this is the token; never where there is none."""
        scheme, _, shown = authorization.strip().partition(" ")
        # In a time that tells nothing of how much of it was right.
        is_right = hmac.compare_digest(shown.strip().encode(errors="replace"), self._token)
        return self.has_token and scheme.lower() == "bearer" and is_right

    def refusal(self, authorization: str, host: str = "") -> Answer | None:
        """Why whoever shows this, and asked for that `Host`, may do nothing here; None: it may."""
        if self.is_local and is_own_name(host):
            return None
        if self.is_local and not self._token:
            self.refused += 1
            return refused(
                E.cluster_authorization_failed,
                f"the request is for {host[:200]!r}, and this door is on the loopback: that may be somebody's page",
                "Ask for localhost, 127.0.0.1 or [::1]; or set admin.token and show it.",
            )
        if not self._token:
            self.refused += 1
            return refused(
                E.cluster_authorization_failed,
                "other machines reach this door and admin.token is not set, so it serves only /metrics and /health",
                "Set admin.token (or FENCEPOST_ADMIN_TOKEN) on every node, or have admin.listener on 127.0.0.1.",
            )
        if self.is_shown(authorization):
            return None
        self.refused += 1
        is_wrong = bool(authorization.strip().partition(" ")[2])
        what = "shows a token that is not this node's" if is_wrong else "shows no token"
        return refused(E.sasl_authentication_failed, f"the request {what}")


def is_own_name(host: str) -> bool:
    """Whether a `Host` names this machine as no page of another's can be named. No browser leaves it out."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name.lower())
