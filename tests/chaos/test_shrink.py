"""A failure is made small: only the faults and clients that it takes are left."""

from collections.abc import Iterable, Iterator

from fencepost.chaos.campaigns.campaign import Outcome
from fencepost.chaos.campaigns.shrink import Shrinker
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.schedule import Struck

FAULTS = [Struck(number, "kill", float(number)) for number in range(1, 15)]
CLIENTS = ("p0", "p1", "r0")


class Simulation:
    """Fails when faults 3 and 7 strike and p1 runs, until some time behind fault 7; in another way with fault 9 alone."""

    def __init__(self) -> None:
        self.seen: list[Plan] = []

    def __call__(self, plans: Iterable[Plan]) -> Iterator[Outcome]:
        for plan in plans:
            self.seen.append(plan)
            yield self.run(plan)

    def run(self, plan: Plan) -> Outcome:
        end = plan.until_s or 20.0
        struck = tuple(each for each in FAULTS if plan.keeps(each.number) and each.at_s < end)
        numbers = {each.number for each in struck}
        clients = tuple((name,) for name in CLIENTS if plan.keeps_client(name))
        kind = ""
        if {3, 7} <= numbers and ("p1",) in clients and end > 7.2:
            kind = "lost"
        elif numbers == {9}:
            kind = "another"
        return Outcome(plan, kind, kind, struck=struck, clients=clients, virtual_s=end)


def test_only_the_faults_and_clients_that_it_takes_are_left() -> None:
    simulation = Simulation()
    first = simulation.run(Plan(campaign="cluster", seed=4711, nodes=3))
    shrunk = Shrinker(first, simulation, seconds=60).shrink()
    assert shrunk.smallest.plan == Plan(
        campaign="cluster",
        seed=4711,
        nodes=3,
        keep_faults=(3, 7),
        keep_clients=("p1",),
        until_s=7.301,
    )
    assert shrunk.smallest.kind == "lost"
    assert shrunk.runs == len(simulation.seen) < 60
    assert str(shrunk).startswith(
        "shrunk from 14 faults to 2, from 3 clients to 1, from 20.0 virtual seconds to 7.3"
    )
    assert shrunk.smallest.plan.command == (
        "fencepost sim run --campaign cluster --seeds 4711 --keep-faults 3,7 --keep-clients p1"
        " --until 7.301s --nodes 3"
    )


def test_a_failure_that_needs_no_fault_says_so() -> None:
    class Always(Simulation):
        def run(self, plan: Plan) -> Outcome:
            found = super().run(plan)
            return Outcome(plan, "lost", "lost", struck=found.struck, clients=found.clients)

    simulation = Always()
    first = simulation.run(Plan(campaign="cluster", seed=1))
    shrunk = Shrinker(first, simulation, seconds=60).shrink()
    assert shrunk.smallest.plan.keep_faults == ()
    assert len(shrunk.smallest.clients) == 1


def test_when_the_time_is_up_what_was_found_so_far_is_kept() -> None:
    simulation = Simulation()
    first = simulation.run(Plan(campaign="cluster", seed=1))
    shrunk = Shrinker(first, simulation, seconds=0).shrink()
    assert shrunk.gave_up
    assert shrunk.smallest is first
