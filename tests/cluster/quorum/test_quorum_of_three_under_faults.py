"""Raft's four properties, watched at every step of quorums under faults; and that the watching can fail."""

import pytest
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.quorum import QuorumRun
from fencepost.cluster.quorum import raft
from fencepost.cluster.quorum.raft import Raft


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_no_fault_breaks_a_property_of_raft_or_loses_what_was_acknowledged(seed: int) -> None:
    QuorumRun(Plan(campaign="quorum", seed=seed, seconds=6)).run()


@pytest.mark.slow
def test_a_vote_that_is_not_remembered_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has to be able to fail: here every voter forgets its vote of this term."""

    def forgetful(self: Raft, node_id: int, message: dict) -> None:
        if not self.leads and self._is_as_far(message):
            answer = {"type": "response_vote", "term": self.term, "fresh": False}
            self._transport.say(node_id, answer)

    monkeypatch.setattr(Raft, "_on_request_vote", forgetful)
    monkeypatch.setattr(raft, "is_elected", lambda voters, granted: len(granted) * 2 > len(voters))
    with pytest.raises(BaseException, match=r".") as failure:
        for seed in range(40):
            QuorumRun(Plan(campaign="quorum", seed=seed, seconds=6)).run()
    assert any(word in repr(failure.value) + str(failure.value) for word in ("safety", "both lead"))
