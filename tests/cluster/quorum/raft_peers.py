"""One Raft and what its peers say, word by word: no loop, no network, and a disk only where it matters."""

import asyncio
from typing import Any

from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.held import Snapshots
from fencepost.cluster.quorum.journal import Journal
from fencepost.cluster.quorum.raft import Raft
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.segment_format import Entry
from fencepost.cluster.quorum.transport import QuorumTransport, read_message, write_message
from fencepost.cluster.quorum.vote_file import VoteFile

VOTERS = {each: (f"n{each}", 9192) for each in (1, 2, 3)}


class Peers:
    """Node 1 of three; what it says is kept, what it hears is written here."""

    def __init__(
        self,
        world: World,
        *,
        fresh: bool = False,
        voters: dict[int, Any] = VOTERS,
        env: Any = None,
    ) -> None:
        self.world = world
        self.env = env or self.world.node("a")
        self.said: list[tuple[int, int, dict[str, Any]]] = []
        vote = VoteFile(self.env, "/data/q/vote")
        self.journal = Journal.open(self.env, "/data/q", vote)
        if not fresh:
            vote.store(0, None, fresh=False)
        transport = QuorumTransport(self)
        with in_world(self.env):
            self.raft = Raft(1, voters, self.journal, transport, Snapshots(bytes), len)
        transport.term = lambda: self.raft.term
        self.sync()

    def send(self, node_id: int, frame: bytes) -> None:
        self.said.append((node_id, *read_message(frame)))

    def hear(self, node_id: int, term: int, kind: str, /, **fields: Any) -> list[tuple[int, str]]:
        """What is said because of it, in short."""
        self.said.clear()
        with in_world(self.env):
            self.raft.receive(node_id, write_message({"type": kind, **fields}, term))
        return [(to, message["type"]) for to, _, message in self.said]

    def append(self, term: int, previous: tuple[int, int], *terms: int, commit: int = 1) -> Any:
        entries = [
            Entry(b"\x00x", index, each) for index, each in enumerate(terms, previous[0] + 1)
        ]
        fields = {"commit_index": commit, "entries": entries, "stamp": 0.0}
        before = {"previous_index": previous[0], "previous_term": previous[1]}
        return self.hear(2, term, "append_entries", **fields, **before)

    def tick(self) -> None:
        with in_world(self.env):
            self.raft.doTick()

    def sync(self) -> None:
        self.world.run(self.world.on(self.env, self.journal.make_durable()))
        with in_world(self.env):
            self.raft.say_what_is_held()

    def sleep(self, seconds: float) -> None:
        self.world.run(asyncio.sleep(seconds))

    def lead(self) -> None:
        """Elected in the next term, with its first entry durable."""
        with in_world(self.env):
            self.raft.elect_at_once()
            self.raft.doTick()
        for each in self.raft.voters:
            if each != 1 and not self.raft.leads:
                self.hear(each, self.raft.term, "response_vote", term=self.raft.term, fresh=False)
        assert self.raft.leads
        self.sync()

    def add(self) -> None:
        """One entry more, which is sent to everybody; what is said of it is in `said`."""
        with in_world(self.env):
            self.raft.submit(b"x", lambda *_: None)
            self.raft.doTick()
            self.said.clear()
            self.raft.replicate()

    def held(self, node_id: int, next_index: int, *, term: int | None = None) -> None:
        term = self.raft.term if term is None else term
        stamp = self.world.loop.time()
        self.hear(node_id, term, "held", next_index=next_index, stamp=stamp)


def asks(one: Peers, node_id: int, term: int, last: tuple[int, int] = (1, 0)) -> Any:
    index, of_term = last
    fields = {"term": term, "last_log_index": index, "last_log_term": of_term}
    return one.hear(node_id, term, "request_vote", **fields)


def pre_asks(one: Peers, node_id: int, term: int, last: tuple[int, int]) -> Any:
    index, of_term = last
    fields = {"round": 1, "last_log_index": index, "last_log_term": of_term}
    return one.hear(node_id, term, "pre_vote", **fields)
