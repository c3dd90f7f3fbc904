"""The composition root: the only file that makes the parts of a node and wires them.

INVARIANT  a node tells the cluster that it is there only after its logs are open and recovered, and lets clients
           in only after the cluster's answer has been applied here.
PREVENTS   a client that writes to a partition whose producer state is not loaded yet.
PROVED BY  tests/node/test_broker.py::test_a_client_that_comes_early_is_served_after_recovery

A node alone goes the same way: it votes alone, its gate leads to itself, and there is no peer door and nothing that
would use one.
"""

from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.controller import reassign_policy
from fencepost.cluster.controller.balance_policy import LeaderBalance
from fencepost.cluster.controller.commands import AutoCreateTopics, FormCluster
from fencepost.cluster.controller.gate import ControllerGate
from fencepost.cluster.controller.liveness import Liveness
from fencepost.cluster.controller.service import Controller
from fencepost.cluster.metadata import levels
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    Endpoint,
    ImageDelta,
)
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.quorum.raft_shell import Quorum
from fencepost.replication.fetch_sessions import FetchSessions
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.replication import Replication
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.partition_log import LocalPartitions
from fencepost.txn.transactions.added_service import AddedService
from fencepost.txn.transactions.service import TransactionService

from .address_check import wait_until_free
from .admin.calls import AdminCalls, leaders_of
from .admin.door import AdminDoor
from .clock_watch import ClockWatch
from .config import NodeConfig
from .connection_limits import ConnectionLimits
from .coordinator_settings import additions, consumer_config, group_config, transaction_config
from .farewell import let_clients_go
from .handlers import APIS
from .isr_proposals import IsrProposals
from .marker_writer import MarkerWriter
from .metrics.metrics import Metrics
from .node_folder import NodeFolder
from .peers import Peers
from .producer_ids import ProducerIds
from .recent_brokers import RecentBrokers
from .server.dispatch import Dispatcher
from .server.listener import ClientListener
from .services import Services
from .session import BrokerSession, failed_replicas
from .topics import Topics
from .tracing.requests import RequestTracing
from .tracing.spans import Spans
from .transaction_doors import MarkersBetweenNodes, Verifier
from .transaction_start import TransactionStarts
from .transaction_words import WordsAhead
from .voters import PEER_LISTENER, VoterChanges

# Feature name -> the levels that this build can work at. Grows with what is built.
SUPPORTED_FEATURES = {
    "eligible.leader.replicas.version": (1, 1),
    "group.version": (0, 1),
    levels.NAME: (levels.OLDEST, levels.NEWEST),
    "transaction.version": (0, 2),
}


class Broker:
    """One node, in any Env: a process of its own or one of many in a simulation."""

    def __init__(self, env: Env, config: NodeConfig, spans: Spans | None = None) -> None:
        self.env = env
        self.config = config
        self.is_ready = self.is_stopping = False
        self.starts_by = "it reads its metadata"  # until its logs are open
        self.folder = NodeFolder(env.disk, config.log_dir, config.node_id, self._new_id)
        self.clock_watch = ClockWatch(env, config.log_dir, getattr(env.log, "flush", None))
        self.machine = MetadataMachine()
        me, peers = config.node_id, config.peers
        self.peers = Peers(env, me, peers, self.machine.image, self.folder)
        self.quorum = Quorum(
            env,
            self.folder.metadata_path,
            self.machine,
            me,
            peers.voters,
            self.peers.links,
        )
        self.active_controller = Controller(env, self.quorum, config.text)
        self.liveness = self._make_liveness()
        self.controller = ControllerGate(env, self.peers.door, self.quorum, self.liveness)
        self.machine.listeners += [self.controller, self.liveness, self.peers]
        self.replicas = ReplicaManager(
            env,
            node_id=me,
            data_dir=config.log_dir,
            node_config=config.text,
            image=self.image,
            is_registered=False,
        )
        self.session = self._make_session()
        self.replicas.on_failure = self.session.log_failed
        self.replicas.rounds.confirm_image = self.peers.confirm_image
        self.replication: Replication | None = None
        if self.peers.door is not None:
            propose = IsrProposals(self.controller, self._me)
            self.replication = Replication(env, self.replicas, self.peers.door, propose.ask)
        self.groups = self._make_groups()
        self.markers = MarkerWriter(env, self.replicas, self.groups, self.peers.confirm_image)
        self.producer_ids = ProducerIds(self.controller, self._me)
        self.transactions = self._make_transactions()
        self.metrics = Metrics(self)
        self.admin = self._make_admin()
        self.tracing = RequestTracing(
            env,
            me,
            config.text,
            syncs=lambda: self.replicas.flusher.recent,
            door=self.peers.door,
            spans=spans,
        )
        self.machine.listeners.append(self.tracing)
        self.verifier = self._make_verifier()
        self.services = self._make_services()
        self.listeners = self._make_listeners()

    def _make_groups(self) -> GroupService:
        return GroupService(
            env=self.env,
            node_id=self.config.node_id,
            image=self.image,
            partitions=LocalPartitions(self.replicas),
            config=group_config(self.config),
            consumer_config=consumer_config(self.config),
            create_topic=self._create_internal_topic,
            confirm_image=self.peers.confirm_image,
        )

    def _make_transactions(self) -> TransactionService:
        me, config = self.config.node_id, self.config
        return TransactionService(
            env=self.env,
            node_id=me,
            image=self.image,
            partitions=LocalPartitions(self.replicas),
            config=transaction_config(config),
            create_topic=self._create_internal_topic,
            producer_ids=self.producer_ids.take,
            markers=MarkersBetweenNodes(me, self.peers.door, self.markers),
            words=WordsAhead(self.env.clock, me, self.replicas, self.peers.door),
            confirm_image=self.peers.confirm_image,
            additions=additions(config),
        )

    def _make_liveness(self) -> Liveness:
        return Liveness(
            self.env,
            self.quorum,
            self.active_controller,
            session_timeout_ms=self.config.integer("broker.session.timeout.ms"),
            duties=(
                ("finish moves", reassign_policy.decide_tick),
                ("balance leaders", LeaderBalance().decide_tick),
            ),
        )

    def _make_session(self) -> BrokerSession:
        return BrokerSession(
            self.env,
            self.controller,
            self.image,
            self.config.node_id,
            rack=self.config.string("broker.rack") or None,
            features=SUPPORTED_FEATURES,
            heartbeat_s=self.config.integer("broker.heartbeat.interval.ms") / 1000,
            timeout_s=self.config.integer("broker.session.timeout.ms") / 1000,
            may_be_decided=self.peers.may_decide,
            on_registered=self._lead,
            disk=lambda: self.folder.disk_id,
            lacking=self.replicas.lacking,
            failed_logs=lambda: failed_replicas(self.replicas.failures(untold=False)),
            untold_failures=lambda: failed_replicas(self.replicas.failures(untold=True)),
            is_disk_full=lambda: self.replicas.is_disk_full,
        )

    def _lead(self) -> None:
        self.replicas.lead()
        if self.replication is not None:
            self.replication.registered()

    def _make_verifier(self) -> Verifier:
        return Verifier(
            env=self.env,
            node_id=self.config.node_id,
            image=self.image,
            replicas=self.replicas,
            transactions=self.transactions,
            door=self.peers.door,
            confirm_image=self.peers.confirm_image,
        )

    def _make_services(self) -> Services:
        env, config, door, transactions = self.env, self.config, self.peers.door, self.transactions
        me, is_registered = config.node_id, self.active_controller.is_registered
        recent = RecentBrokers(env.clock)
        self.machine.listeners.append(recent)
        return Services(
            env=env,
            config=config,
            image=self.image,
            controller=self.controller,
            replicas=self.replicas,
            groups=self.groups,
            fetch_sessions=FetchSessions(
                draw_id=lambda: env.rng.randint(1, 2**31 - 1),
                slots_max=config.integer("max.incremental.fetch.session.cache.slots"),
            ),
            producer_ids=self.producer_ids,
            transactions=transactions,
            verifier=self.verifier,
            transaction_starts=TransactionStarts(env.clock, config.node_id, door, transactions),
            markers=self.markers,
            topics=Topics(env, self.controller),
            describe_quorum=self.peers.describe_quorum,
            voters=VoterChanges(env, me, self.quorum, self.image, door, is_registered),
            settled=self.peers.settled,
            confirm_image=self.peers.confirm_image,
            recent=recent,
            is_cut_off=lambda: self.session.is_cut_off,
            apis=list(APIS.values()),
            supported_features=SUPPORTED_FEATURES,
        )

    def _make_admin(self) -> AdminDoor:
        calls = AdminCalls(
            self.env,
            self.config.node_id,
            self.peers.door,
            AddedService(self.env, self.transactions, self.peers.confirm_image),
            alive=lambda: [each.broker_id for each in self.image.alive_brokers()],
            leaders=lambda: leaders_of(self.image),
        )
        return AdminDoor(
            self.env,
            calls,
            is_ready=lambda: self.is_ready,
            token=self.config.string("admin.token"),
            told=self.metrics.told(),
        )

    def _make_listeners(self) -> list[ClientListener]:
        config = self.config
        dispatcher = self.dispatcher = Dispatcher(
            self.env.clock,
            APIS,
            self.services,
            request_bytes_max=config.integer("socket.request.max.bytes"),
        )
        dispatcher.tracing = self.tracing
        self.limits = ConnectionLimits(config)
        self.machine.listeners.append(self.limits)
        return [
            ClientListener(
                self.env,
                address.name,
                dispatcher,
                self.limits.places,
                idle_s_max=config.integer("connections.max.idle.ms") / 1000,
            )
            for address in config.listeners
        ]

    @property
    def image(self) -> ClusterImage:
        return self.machine.image

    async def start(self) -> tuple[str, int]:
        """Start serving; the address of the first listener."""
        self.folder.open()
        for door, wanted in zip(self.listeners, self.config.listeners, strict=True):
            await door.try_address(wanted.host, wanted.port)
        if self.config.admin_listener is not None:
            await self.admin.open(*self.config.admin_listener)
            self.metrics.start()
        await self.quorum.start()
        await self.peers.open(self.quorum, self.liveness)
        self.liveness.start()
        self.starts_by = "it waits for a majority of the voters, and for their metadata"
        await self.peers.wait_ready()
        await self._form_cluster()
        self.clock_watch.start()
        self.starts_by = "it opens and recovers its logs"
        await self.replicas.start()
        self.machine.listeners.append(self)
        if self.replication is not None:
            await self.replication.start()
            self.replication.on_image(ImageDelta.everything(self.image))
        self.starts_by = ""
        # The doors are opened first, because port 0 gets its number there; whoever knocks waits.
        addresses = [
            await door.open(wanted.host, wanted.port)
            for door, wanted in zip(self.listeners, self.config.listeners, strict=True)
        ]
        endpoints = self._endpoints(addresses)
        await wait_until_free(
            self.env, self.image, self.config.node_id, endpoints, within_s=self.session.patience_s
        )
        await self.session.start(endpoints)
        await self.groups.start()
        await self.transactions.start()
        for door in self.listeners:
            door.let_in()
        self.is_ready = True
        self.metrics.node_is_ready()
        self.env.log.info("node_ready", listeners=[f"{host}:{port}" for host, port in addresses])
        return addresses[0]

    async def stop(self) -> None:
        """Stop cleanly: leaders move, nobody new, parked requests end, logs closed and marked as clean.

        One that was not ready yet just ends, as if it had been killed: nothing was promised to anybody.
        """
        self.is_stopping = True
        if self.is_ready:
            self.is_ready = False
            await self._stop_serving()
        self.metrics.stop()
        await self.admin.close()
        await self.liveness.stop()
        await self.quorum.stop()
        await self.peers.close()
        self.folder.close()

    async def _stop_serving(self) -> None:
        await self.session.leave()
        for door in self.listeners:
            await door.stop_accepting()
        if self.session.others_serve:
            await let_clients_go(self.env.clock, self.listeners)
        self.verifier.stop()
        await self.transactions.stop()
        await self.groups.stop()
        for door in self.listeners:
            await door.close_all()
        if self.replication is not None:
            await self.replication.stop()
        await self.replicas.stop()
        await self.clock_watch.stop()

    def on_image(self, delta: ImageDelta) -> None:
        """After each command of the metadata log: replicas first, then those who write through them."""
        self.replicas.on_image(delta)
        if self.replication is not None:
            self.replication.on_image(delta)
        self.groups.on_image(delta)
        self.transactions.on_image(delta)
        self.session.on_image(delta)

    async def _form_cluster(self) -> None:
        """The first node of a cluster gives it its name."""
        self.folder.join(await self.controller.execute(FormCluster()))
        self.peers.tell_life()  # the greetings have not, if this is the folder's first

    def _new_id(self) -> UUID:
        return UUID(int=self.env.rng.getrandbits(128), version=4)

    def _endpoints(self, addresses: list[tuple[str, int]]) -> tuple[Endpoint, ...]:
        endpoints = [
            Endpoint(wanted.name, wanted.host, wanted.port or port, wanted.protocol)
            for wanted, (_, port) in zip(self.config.advertised, addresses, strict=True)
        ]
        if self.config.peers.advertised is not None:
            host, port = self.config.peers.advertised
            endpoints.append(Endpoint(PEER_LISTENER, host, port, PEER_LISTENER))
        return tuple(endpoints)

    def _me(self) -> BrokerState:
        """Trouble while this node is taken off the list: somebody thought it dead. It registers again."""
        me = self.image.brokers.get(self.config.node_id)
        if me is None:
            raise Trouble(f"Node {self.config.node_id} is not registered.", Outcome.REFUSED)
        return me

    async def _create_internal_topic(self, name: str) -> None:
        for result in await self.controller.execute(AutoCreateTopics(names=(name,))):
            if result.error_code is not ErrorCode.none:
                raise Trouble(
                    f"{name} can't be created: {result.error_code.name}, {result.error_message}",
                    Outcome.REFUSED,
                )
