"""A plan is all that a run depends on: its command, read back, is the same plan."""

import argparse

import pytest
from fencepost.chaos.campaigns.again import packed, unpacked
from fencepost.chaos.campaigns.campaign import CAMPAIGNS
from fencepost.chaos.campaigns.options import CAMPAIGN_NAMES, plans_of, seeds, why_not
from fencepost.chaos.sim.plan import Plan
from fencepost.node.cli import COMMANDS
from fencepost.node.main import main

PLANS = [
    Plan(campaign="cluster", seed=17),
    Plan(
        campaign="transactions",
        seed=4711,
        seconds=2.5,
        faults=("hunt", "at-a-decision"),
        keep_faults=(3, 7),
        keep_clients=("t0", "admin"),
        until_s=12.525,
        nodes=4,
        at_once=1,
        workloads=("bank",),
        protocol="old",
        config=("flush.policy=os", "replica.lag.time.max.ms=900"),
        planted="marker-left-out",
        watch="clients",
    ),
    Plan(campaign="quorum", seed=3, keep_faults=()),
]


def read(command: str) -> list[Plan]:
    import importlib

    words = command.split()
    assert words[:2] == ["fencepost", "sim"]
    parser = argparse.ArgumentParser()
    importlib.import_module(COMMANDS["sim"][0]).configure(parser)
    return list(plans_of(parser.parse_args(words[2:])))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.campaign)
def test_the_command_of_a_plan_is_read_back_as_the_same_plan(plan: Plan) -> None:
    assert read(plan.command) == [plan]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.campaign)
def test_a_plan_that_goes_to_another_process_is_the_same_plan(plan: Plan) -> None:
    assert unpacked(packed(plan)) == plan


def test_all_means_every_campaign_with_every_seed() -> None:
    plans = read("fencepost sim run --campaign all --seeds 2..4")
    assert [(plan.campaign, plan.seed) for plan in plans] == [
        (name, seed) for name in CAMPAIGN_NAMES for seed in (2, 3)
    ]
    assert sorted(CAMPAIGN_NAMES) == sorted(CAMPAIGNS)


@pytest.mark.parametrize("text", ["x", "3..x", "5..5", "..4", "-1"])
def test_seeds_that_can_not_be_read_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seeds(text)


def test_what_a_campaign_does_not_know_is_named_with_what_it_does() -> None:
    assert why_not(Plan(campaign="quorum", seed=1, faults=("at-a-vote",))) == ""
    assert "'hunt' is no fault of campaign quorum" in why_not(
        Plan(campaign="quorum", seed=1, faults=("hunt",))
    )
    assert "no workload of campaign cluster" in why_not(
        Plan(campaign="cluster", seed=1, workloads=("bank",))
    )
    assert (
        "--nodes 3 is of cluster, transactions or added; campaign quorum has nodes of its own"
        in (why_not(Plan(campaign="quorum", seed=1, nodes=3)))
    )
    assert "no planted bug" in why_not(Plan(campaign="cluster", seed=1, planted="nothing"))
    assert "unknown setting foo;" in why_not(Plan(campaign="cluster", seed=1, config=("foo=1",)))
    assert why_not(Plan(campaign="cluster", seed=1, config=("flush.policy=os",))) == ""


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--jobs", "0", "is no number from 1 on"),
        ("--seconds", "-1", "is no time"),
        ("--until", "infs", "is no time"),
        ("--until", "soon", "is no time: say 12.5s"),
        ("--nodes", "99", "'99' is no number of nodes: say 1, 3, 4 or 5"),
        ("--nodes", "2", "'2' is no number of nodes: say 1, 3, 4 or 5"),
        ("--nodes", "-1", "is no number of nodes"),
    ],
)
def test_a_number_that_can_not_be_is_refused_with_what_is_allowed(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sim", "run", f"{option}={value}"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_tells_limits_and_which_campaigns_an_option_is_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said of workloads that they are the transactions' alone, and of nodes no limit."""
    with pytest.raises(SystemExit):
        main(["sim", "run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "of cluster, transactions or added: 1, 3, 4 or 5; the seed says when not" in said
    assert "only these clients, of cluster or transactions;" in said
    assert {name for name, each in CAMPAIGNS.items() if each.workloads} == {
        "cluster",
        "transactions",
    }
    main(["sim", "campaigns"])
    said = capsys.readouterr().out
    for each in CAMPAIGNS.values():
        assert not each.workloads or f"  workloads: {', '.join(each.workloads)}\n" in said
