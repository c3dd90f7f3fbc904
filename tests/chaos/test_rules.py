"""Whatever a checker can say is known to the campaigns: by its rule a failing seed is made small, and a planted bug names it."""

import ast
from pathlib import Path

import pytest
from fencepost.chaos.campaigns.campaign import RULE_NAMES, RULES, kind_of
from fencepost.chaos.checkers import history

CHECKERS = Path(history.__file__).parent
LOOKING = [
    file
    for folder in ("checkers", "sim", "workloads")
    for file in sorted((CHECKERS.parent / folder).glob("*.py"))
]
SAYS = {"Anomaly", "self.found.add"}
# Files in which some rule's name is put together, and all that comes of it.
COMPUTED = {
    "cycles.py": "G0 G0-process G0-realtime G1c G1c-process G1c-realtime",
    "exactly_once.py": "doubled left-out from-nothing",
    "polls.py": "poll-skip int-poll-skip nonmonotonic-poll int-nonmonotonic-poll",
    "raft_properties.py": "election-safety log-matching leader-completeness commit-majority state-machine-safety order",
    "queue_cycles.py": "",  # what cycles.py says
    "queue_lines.py": "nonmonotonic-send int-nonmonotonic-send nonmonotonic-poll int-nonmonotonic-poll",
    "queue_places.py": "poll-skip int-poll-skip group-skip",
    "sends.py": "nonmonotonic-send int-nonmonotonic-send",
}
# Said without an `Anomaly`.
OF_CAMPAIGNS = {"dead-client", "no-progress"}


def said_in(file: Path) -> tuple[set[str], bool]:
    """The rules that it names, and whether it says others, too."""
    named: set[str] = set()
    is_computed = False
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SAYS:
            rule = node.args[0]
            if isinstance(rule, ast.Constant):
                named.add(rule.value)
            else:
                is_computed = True
    return named, is_computed


def test_the_campaigns_know_every_rule_that_a_checker_can_say() -> None:
    said = {rule for file in LOOKING for rule in said_in(file)[0]}
    said |= {rule for names in COMPUTED.values() for rule in names.split()}
    assert len(said) > 50
    assert sorted(said - RULE_NAMES) == []
    assert sorted(RULE_NAMES - said - OF_CAMPAIGNS) == [], "nobody says these any more"


def test_whoever_puts_a_rule_s_name_together_is_listed_with_what_comes_of_it() -> None:
    assert {file.name for file in LOOKING if said_in(file)[1]} == set(COMPUTED)


def test_the_table_of_jepsen_s_names_has_rules_that_there_are() -> None:
    text = (CHECKERS / "README.md").read_text()
    table = text.partition("## Jepsen's names")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")][1:]
    named = {name.strip() for row in rows for name in row.replace("(ours)", "").split(",")}
    assert len(named) > 25
    assert sorted(named - RULE_NAMES) == []


@pytest.mark.parametrize("rule", sorted(RULE_NAMES))
def test_a_failure_is_named_by_its_rule_and_not_by_the_end_of_it(rule) -> None:
    told = f"{rule}: t-0: it is"
    assert [each.group(1) for each in RULES.finditer(told)] == [rule]
    assert kind_of(AssertionError(told)) == rule
    assert kind_of(AssertionError(f"watch; {told}")) == rule


def test_what_was_refused_by_somebody_else_is_no_rule_s_word() -> None:
    assert RULES.search("node 3 refused: it is full") is None
    assert kind_of(OSError("connection refused: 9092")) == "OSError-connection-refused"
