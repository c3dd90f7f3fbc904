import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidRegularExpression;

/** kafka-clients where its own recovery depends on the broker's exact answer. */
final class EdgeScenarios {
    private EdgeScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        known.put("a_large_record_fits_where_the_topic_allows_it", EdgeScenarios::large);
        known.put("a_batch_over_the_limit_is_split_by_the_client", EdgeScenarios::split);
        known.put("offsets_are_committed_at_the_close", EdgeScenarios::autoCommit);
        known.put("a_double_of_a_static_member_fences_the_first", EdgeScenarios::fenced);
        known.put("a_member_with_other_assignors_is_refused", EdgeScenarios::inconsistent);
        known.put("new_partitions_reach_a_group", kit -> grow(kit, "classic"));
        known.put("new_partitions_reach_a_group_kip848", kit -> grow(kit, "consumer"));
        known.put("the_server_matches_a_pattern", EdgeScenarios::pattern);
    }

    private static void large(Kit kit) throws Exception {
        kit.create(1, "max.message.bytes", "9000000");
        Producer<byte[], byte[]> producer = kit.producer("max.request.size", "10000000");
        byte[] value = new byte[8_000_000];
        new Random(1).nextBytes(value);
        Kit.await(producer.send(new ProducerRecord<>(kit.topic, value)));
        Kit.await(producer.send(new ProducerRecord<>(kit.topic, Kit.bytes("small"))));
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(2, 1);
        Kit.check(java.util.Arrays.equals(value, got.get(0).value()), "the large value differs");
        Kit.equal("small", Kit.text(got.get(1).value()), "what follows it");
    }

    /** On MESSAGE_TOO_LARGE the producer splits its batch and sends the parts, with new sequences. */
    private static void split(Kit kit) throws Exception {
        kit.create(1, "max.message.bytes", "20000");
        Producer<byte[], byte[]> producer = kit.producer(
            "compression.type", "gzip", "batch.size", "200000", "linger.ms", "300");
        Random random = new Random(2);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            byte[] noise = new byte[4000];
            random.nextBytes(noise);
            sent.add(producer.send(new ProducerRecord<>(kit.topic, 0, Kit.bytes("" + i), noise)));
        }
        for (Future<RecordMetadata> one : sent) {
            Kit.await(one);
        }
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(30, 1);
        for (int i = 0; i < 30; i++) {
            Kit.equal("" + i, Kit.text(got.get(i).key()), "key at " + i);
        }
    }

    private static void autoCommit(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(15);
        try (Consumer<byte[], byte[]> consumer = kit.consumer("enable.auto.commit", "true")) {
            consumer.subscribe(List.of(kit.topic));
            Kit.receive(consumer, 15);
        }
        Kit.equal(15L, kit.consumer().committed(kit.parts(1)).get(kit.part(0)).offset(), "offset");
    }

    private static Consumer<byte[], byte[]> joined(Kit kit, String... settings) throws Exception {
        Consumer<byte[], byte[]> member = kit.consumer(settings);
        member.subscribe(List.of(kit.topic));
        GroupScenarios.settle(List.of(member), kit.parts(1));
        return member;
    }

    private static void dies(Class<? extends Exception> kind, Consumer<byte[], byte[]> member)
        throws Exception {
        try {
            Kit.until(kind.getSimpleName(), () -> member.poll(Duration.ofMillis(100)) == null);
        } catch (KafkaException error) {
            Kit.equal(kind, error.getClass(), "died of " + error);
        }
    }

    private static void fenced(Kit kit) throws Exception {
        kit.create(1);
        Consumer<byte[], byte[]> first = joined(kit, "group.instance.id", "one");
        joined(kit, "group.instance.id", "one");
        dies(FencedInstanceIdException.class, first);
    }

    private static void inconsistent(Kit kit) throws Exception {
        kit.create(1);
        joined(kit, "partition.assignment.strategy",
            org.apache.kafka.clients.consumer.RangeAssignor.class.getName());
        Consumer<byte[], byte[]> second =
            kit.consumer("partition.assignment.strategy", RoundRobinAssignor.class.getName());
        second.subscribe(List.of(kit.topic));
        dies(InconsistentGroupProtocolException.class, second);
    }

    private static void grow(Kit kit, String protocol) throws Exception {
        kit.create(1);
        Consumer<byte[], byte[]> member =
            joined(kit, "group.protocol", protocol, "metadata.max.age.ms", "300");
        Map<String, NewPartitions> three = Map.of(kit.topic, NewPartitions.increaseTo(3));
        Kit.done(() -> kit.admin().createPartitions(three).all(), InvalidPartitionsException.class);
        GroupScenarios.settle(List.of(member), kit.parts(3));
    }

    /** KIP-848 lets the server match, in RE2's language. */
    private static void pattern(Kit kit) throws Exception {
        kit.create(2);
        Consumer<byte[], byte[]> member = kit.consumer("group.protocol", "consumer");
        String stem = kit.topic.replace(".", "\\.").replace("java", "j[av]{2}a");
        member.subscribe(new SubscriptionPattern(stem));
        GroupScenarios.settle(List.of(member), kit.parts(2));
        Consumer<byte[], byte[]> wrong =
            kit.consumer("group.protocol", "consumer", "group.id", kit.group + ".wrong");
        wrong.subscribe(new SubscriptionPattern("(unclosed"));
        dies(InvalidRegularExpression.class, wrong);
    }
}
