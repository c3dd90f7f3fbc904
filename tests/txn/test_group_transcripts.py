"""The stories of tests/transcripts/txn/group_*.txt."""

from pathlib import Path
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.records import (
    GroupForgotten,
    GroupMetadata,
    OffsetCommitted,
    OffsetForgotten,
)
from fencepost.txn.runtime.decision import Answer, Decision, Parked
from support.group_scene import Scene
from support.transcript import check

STORIES = sorted((Path(__file__).parents[1] / "transcripts" / "txn").glob("group_*.txt"))


class Telling(Scene):
    """A scene that says what happens. Clients have names; what they were told last, they say next."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # ticket -> client
        self.told: dict[str, tuple[str, int]] = {}  # client -> member id, generation
        super().__init__()

    def run(self, command: str) -> list[str]:
        self.lines.clear()
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        getattr(self, f"on_{verb}")(names, options)
        return list(self.lines)

    def say(self, *words: object) -> None:
        self.lines.append("  ".join(str(word) for word in words))

    # -- commands ----------------------------------------------------------------------------------

    def on_join(self, names: list[str], options: dict[str, str]) -> None:
        """join NAME [anew] [instance=I] [protocols=p,q] [version=N]: anew forgets the member id."""
        (name, *more) = names
        member_id = "" if "anew" in more else self.told.get(name, ("", 0))[0]
        self.names[self.ticket + 1] = name
        reply = self.join(
            member_id,
            client=name,
            instance=options.get("instance"),
            protocols=[(p, b"") for p in options.get("protocols", "range").split(",")],
            version=int(options.get("version", "9")),
        )
        self.answered(name, reply)

    def on_sync(self, names: list[str], options: dict[str, str]) -> None:
        """sync NAME [CLIENT=ASSIGNMENT ...]"""
        (name,) = names
        member_id, generation = self.told[name]
        self.names[self.ticket + 1] = name
        assign = [(self.told[who][0], what.encode()) for who, what in options.items()]
        self.answered(name, self.sync(member_id, generation, assign=assign, protocol_name=None))

    def on_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            self.say(name, self.heartbeat(*self.told[name]).name)

    def on_leave(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            self.say(name, self.leave(self.told[name][0])[0].name)

    def on_commit(self, names: list[str], options: dict[str, str]) -> None:
        """commit [NAME] TOPIC-PARTITION=OFFSET ..."""
        positions = []
        for where, offset in options.items():
            topic, _, partition = where.rpartition("-")
            positions.append((topic, int(partition), int(offset)))
        member_id, generation = self.told[names[0]] if names else ("", -1)
        codes = self.commit(*positions, member_id=member_id, generation=generation)
        self.say(names[0] if names else "somebody", *(code.name for code in codes))

    def on_transaction(self, names: list[str], options: dict[str, str]) -> None:
        """transaction commit | abort | TOPIC-PARTITION=OFFSET"""
        for outcome in names:
            self.end_transaction(7, commit=outcome == "commit")
            self.say("marker", outcome)
        for where, offset in options.items():
            topic, _, partition = where.rpartition("-")
            codes = self.commit_in_transaction(7, (topic, int(partition), int(offset)))
            self.say("producer", *(code.name for code in codes))

    def on_fetch(self, names: list[str], options: dict[str, str]) -> None:
        """fetch [TOPIC PARTITION ...]: all of the group without a topic, and stable ones only with one."""
        partitions = [int(word) for word in names[1:]]
        found = self.fetch(*names[:1], *partitions, stable=bool(names))
        for (topic, partition), value in found.items():
            shown = value.name if isinstance(value, ErrorCode) else value
            self.say(f"{topic}-{partition}", shown)

    def on_pass(self, names: list[str], options: dict[str, str]) -> None:
        """pass SECONDS"""
        self.pass_ms(int(float(names[0]) * 1_000))

    def on_takeover(self, names: list[str], options: dict[str, str]) -> None:
        """The next coordinator knows the log, and nothing else."""
        for ticket in sorted(self.parked):
            self.say(self.names[ticket], ErrorCode.not_coordinator.name)
        self.reload()

    def on_phase(self, names: list[str], options: dict[str, str]) -> None:
        generation = "" if self.phase() == "none" else f"generation {self.generation()}"
        self.say(self.phase(), generation)

    # -- what is told ------------------------------------------------------------------------------

    def answered(self, name: str, reply: Any) -> None:
        if isinstance(reply, Parked):
            if reply.ticket in self.parked:
                self.lines.insert(0, f"{name}  parked")
            return
        self.tell(name, reply)

    def tell(self, name: str, fields: dict[str, Any]) -> None:
        error = fields["error_code"]
        if "assignment" in fields:
            what = [f"assigned [{fields['assignment'].decode()}]"]
        else:
            if error in (ErrorCode.none, ErrorCode.member_id_required):
                self.told[name] = fields["member_id"], fields["generation_id"]
            what = [f"generation {fields['generation_id']}", f"leader {fields['leader']}"]
            what += [" ".join(row["member_id"] for row in fields["members"])]
            if fields["skip_assignment"]:
                what.append("skips the assignment")
        if error is not ErrorCode.none:
            what = [error.name, fields.get("member_id", "")]
        self.say(name, *(word for word in what if word))

    def _take(self, decision: Decision) -> None:
        super()._take(decision)
        for record in decision.records:
            self.say("log", _show(record))
        for effect in decision.effects:
            if isinstance(effect, Answer):
                self.tell(self.names[effect.ticket], effect.fields)


def _show(record: Any) -> str:
    match record:
        case GroupMetadata():
            members = " ".join(f"{m.member_id}[{m.assignment.decode()}]" for m in record.members)
            return f"group  generation {record.generation}  {members or 'empty'}"
        case GroupForgotten():
            return "group  forgotten"
        case OffsetCommitted():
            return f"offset  {record.topic}-{record.partition} {record.committed_offset}"
        case OffsetForgotten():
            return f"offset  {record.topic}-{record.partition} forgotten"
    return str(record)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(story: Path, request: pytest.FixtureRequest) -> None:
    check(story, Telling().run, request)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 5
