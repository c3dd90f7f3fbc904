import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** kafka-clients in groups, with the classic protocol and with KIP-848's. */
final class GroupScenarios {
    private static final String ASSIGNOR = "partition.assignment.strategy";
    private static final String[] SERVER_SIDE = {"group.protocol", "consumer"};

    private GroupScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        List<Class<?>> assignors = List.of(
            RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class,
            CooperativeStickyAssignor.class);
        for (Class<?> assignor : assignors) {
            known.put("members_share_" + assignor.getSimpleName(),
                kit -> share(kit, ASSIGNOR, assignor.getName()));
        }
        known.put("members_share_kip848_uniform",
            kit -> share(kit, with("group.remote.assignor", "uniform")));
        known.put("members_share_kip848_range",
            kit -> share(kit, with("group.remote.assignor", "range")));
        known.put("a_group_goes_on_where_it_committed", GroupScenarios::resume);
        known.put("a_group_goes_on_where_it_committed_kip848", kit -> resume(kit, SERVER_SIDE));
        known.put("a_static_member_returns_unnoticed", GroupScenarios::staticMember);
        known.put("a_static_member_returns_kip848", GroupScenarios::staticMemberServerSide);
        known.put("a_pattern_follows_new_topics", kit -> pattern(kit, false));
        known.put("a_pattern_follows_new_topics_kip848", kit -> pattern(kit, true));
        known.put("a_classic_group_is_taken_over_by_kip848", GroupScenarios::migrate);
        known.put("a_member_can_be_removed_by_an_admin", GroupScenarios::removal);
        known.put("a_commit_of_a_removed_member_fails", GroupScenarios::lateCommit);
        known.put("an_enforced_rebalance_happens", GroupScenarios::enforced);
    }

    private static String[] with(String... more) {
        List<String> all = new ArrayList<>(List.of(SERVER_SIDE));
        all.addAll(List.of(more));
        return all.toArray(new String[0]);
    }

    static void settle(List<Consumer<byte[], byte[]>> members, Set<TopicPartition> wanted)
        throws Exception {
        int least = wanted.size() / members.size();
        Kit.until(members.size() + " members share " + wanted, () -> {
            Set<TopicPartition> all = new HashSet<>();
            int sum = 0;
            boolean even = true;
            for (Consumer<byte[], byte[]> member : members) {
                member.poll(Duration.ofMillis(50));
                all.addAll(member.assignment());
                sum += member.assignment().size();
                even = even && member.assignment().size() >= least;
            }
            return even && sum == wanted.size() && all.equals(wanted);
        });
    }

    private static void share(Kit kit, String... settings) throws Exception {
        kit.create(6);
        List<Consumer<byte[], byte[]>> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Consumer<byte[], byte[]> member = kit.consumer(settings);
            member.subscribe(List.of(kit.topic));
            members.add(member);
            settle(members, kit.parts(6));
        }
        members.remove(0).close();
        settle(members, kit.parts(6));
    }

    private static void resume(Kit kit, String... settings) throws Exception {
        kit.create(1);
        kit.fill(20);
        try (Consumer<byte[], byte[]> first = kit.consumer(settings)) {
            first.subscribe(List.of(kit.topic));
            Kit.receive(first, 20);
            first.commitSync(Map.of(kit.part(0), new OffsetAndMetadata(12, "a note")));
        }
        Consumer<byte[], byte[]> second = kit.consumer(settings);
        second.subscribe(List.of(kit.topic));
        Kit.equal(12L, Kit.receive(second, 8).get(0).offset(), "first offset");
        OffsetAndMetadata there = second.committed(kit.parts(1)).get(kit.part(0));
        Kit.equal("a note", there.metadata(), "metadata");
    }

    private static void staticMember(Kit kit) throws Exception {
        kit.create(4);
        AtomicInteger rebalances = new AtomicInteger();
        Consumer<byte[], byte[]> one =
            kit.consumer("group.instance.id", "one", "session.timeout.ms", "30000");
        one.subscribe(List.of(kit.topic), counting(rebalances));
        Consumer<byte[], byte[]> two =
            kit.consumer("group.instance.id", "two", "session.timeout.ms", "30000");
        two.subscribe(List.of(kit.topic));
        settle(List.of(one, two), kit.parts(4));
        Set<TopicPartition> before = two.assignment();
        int count = rebalances.get();
        two.close();
        Consumer<byte[], byte[]> again =
            kit.consumer("group.instance.id", "two", "session.timeout.ms", "30000");
        again.subscribe(List.of(kit.topic));
        Kit.until("its old partitions", () -> {
            again.poll(Duration.ofMillis(50));
            one.poll(Duration.ofMillis(50));
            return again.assignment().equals(before);
        });
        Kit.equal(count, rebalances.get(), "rebalances of the other");
    }

    private static void staticMemberServerSide(Kit kit) throws Exception {
        kit.create(4);
        Consumer<byte[], byte[]> one = kit.consumer(with("group.instance.id", "one"));
        one.subscribe(List.of(kit.topic));
        Consumer<byte[], byte[]> two = kit.consumer(with("group.instance.id", "two"));
        two.subscribe(List.of(kit.topic));
        settle(List.of(one, two), kit.parts(4));
        Set<TopicPartition> kept = one.assignment();
        Set<TopicPartition> before = two.assignment();
        two.close();
        Consumer<byte[], byte[]> again = kit.consumer(with("group.instance.id", "two"));
        again.subscribe(List.of(kit.topic));
        Kit.until("its old partitions", () -> {
            again.poll(Duration.ofMillis(50));
            one.poll(Duration.ofMillis(50));
            return again.assignment().equals(before);
        });
        Kit.equal(kept, one.assignment(), "the other's partitions");
    }

    private static ConsumerRebalanceListener counting(AtomicInteger count) {
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> parts) {
                count.incrementAndGet();
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> parts) {
                count.incrementAndGet();
            }
        };
    }

    private static void pattern(Kit kit, boolean serverSide) throws Exception {
        String stem = kit.topic.replace('.', '-');
        kit.create(stem + "-a", 1);
        Consumer<byte[], byte[]> consumer = serverSide
            ? kit.consumer(SERVER_SIDE) : kit.consumer("metadata.max.age.ms", "300");
        if (serverSide) { // RE2 on the broker
            consumer.subscribe(new SubscriptionPattern(stem + "-.*"));
        } else {
            consumer.subscribe(Pattern.compile(stem + "-.*"));
        }
        TopicPartition first = new TopicPartition(stem + "-a", 0);
        settle(List.of(consumer), Set.of(first));
        kit.create(stem + "-b", 1);
        settle(List.of(consumer), Set.of(first, new TopicPartition(stem + "-b", 0)));
    }

    private static void migrate(Kit kit) throws Exception {
        kit.create(4);
        Consumer<byte[], byte[]> classic =
            kit.consumer(ASSIGNOR, CooperativeStickyAssignor.class.getName());
        classic.subscribe(List.of(kit.topic));
        settle(List.of(classic), kit.parts(4));
        Kit.equal(GroupType.CLASSIC, describe(kit), "type before");
        Consumer<byte[], byte[]> modern = kit.consumer(SERVER_SIDE);
        modern.subscribe(List.of(kit.topic));
        settle(List.of(classic, modern), kit.parts(4));
        Kit.equal(GroupType.CONSUMER, describe(kit), "type with both");
        classic.close();
        settle(List.of(modern), kit.parts(4));
    }

    private static GroupType describe(Kit kit) throws Exception {
        return Kit.await(kit.admin().describeConsumerGroups(List.of(kit.group)).all())
            .get(kit.group).type();
    }

    private static void removal(Kit kit) throws Exception {
        kit.create(2);
        Consumer<byte[], byte[]> member = kit.consumer("group.instance.id", "to-be-removed");
        member.subscribe(List.of(kit.topic));
        settle(List.of(member), kit.parts(2));
        Kit.await(kit.admin().removeMembersFromConsumerGroup(
            kit.group,
            new RemoveMembersFromConsumerGroupOptions(
                List.of(new MemberToRemove("to-be-removed")))).all());
        Kit.until("the group is empty", () -> Kit.await(
            kit.admin().describeConsumerGroups(List.of(kit.group)).all())
            .get(kit.group).groupState() == GroupState.EMPTY);
    }

    private static void lateCommit(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(1);
        Consumer<byte[], byte[]> member = kit.consumer("max.poll.interval.ms", "1000");
        member.subscribe(List.of(kit.topic));
        settle(List.of(member), kit.parts(1));
        Thread.sleep(4000); // longer than it may stay away: its client leaves the group
        try {
            member.commitSync(Map.of(kit.part(0), new OffsetAndMetadata(1)));
            throw new AssertionError("the commit was taken");
        } catch (CommitFailedException expected) {
            Kit.check(true, "told");
        }
    }

    private static void enforced(Kit kit) throws Exception {
        kit.create(2);
        AtomicInteger rebalances = new AtomicInteger();
        Consumer<byte[], byte[]> member = kit.consumer();
        member.subscribe(List.of(kit.topic), counting(rebalances));
        settle(List.of(member), kit.parts(2));
        int before = rebalances.get();
        member.enforceRebalance("a test asked for it");
        Kit.until("a rebalance", () -> {
            member.poll(Duration.ofMillis(50));
            return rebalances.get() >= before + 2;
        });
        Kit.equal(kit.parts(2), member.assignment(), "partitions");
    }
}
