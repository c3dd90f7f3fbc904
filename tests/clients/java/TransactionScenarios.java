import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** kafka-clients' transactions: with transaction.version 2 each has an epoch of its own (KIP-890). */
final class TransactionScenarios {
    private static final int TRIES = 8;

    private TransactionScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        known.put("transactions_are_read_whole_or_not_at_all", TransactionScenarios::whole);
        known.put("a_reader_waits_at_an_open_transaction", TransactionScenarios::open);
        known.put("each_transaction_has_an_epoch_of_its_own", TransactionScenarios::epochs);
        known.put("a_second_producer_with_the_same_id_fences_the_first", TransactionScenarios::fencing);
        known.put("an_operator_ends_the_transaction_of_an_id", TransactionScenarios::terminate);
        known.put("an_operator_aborts_what_a_partition_has_open", TransactionScenarios::abortByAdmin);
        known.put("offsets_come_with_the_commit_and_not_with_an_abort", kit -> offsets(kit, "classic"));
        known.put("offsets_come_with_the_commit_and_not_with_an_abort_kip848", kit -> offsets(kit, "consumer"));
        known.put("offsets_of_a_member_that_left_are_refused", kit -> strangers(kit, "classic"));
        known.put("offsets_of_a_member_that_left_are_refused_kip848", kit -> strangers(kit, "consumer"));
        known.put("a_refused_record_ends_in_an_abort", TransactionScenarios::refused);
        known.put("a_timeout_over_the_maximum_is_refused", TransactionScenarios::timeout);
        known.put("transactions_are_listed_and_described", TransactionScenarios::described);
    }

    private static Producer<byte[], byte[]> transactional(Kit kit, String name, String... settings) throws Exception {
        List<String> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of("transactional.id", kit.group + "." + name));
        Producer<byte[], byte[]> producer = kit.producer(all.toArray(new String[0]));
        producer.initTransactions();
        return producer;
    }

    /** One transaction, committed; while leaders die, as many aborted ones before it as that takes. */
    private static void transact(Producer<byte[], byte[]> producer, Kit.Step work) throws Exception {
        for (int left = TRIES - 1; ; left--) {
            producer.beginTransaction();
            try {
                work.run();
                producer.commitTransaction();
                return;
            } catch (ProducerFencedException fenced) {
                throw fenced;
            } catch (KafkaException failed) {
                if (!Kit.IN_CHAOS || left == 0) {
                    throw failed;
                }
                producer.abortTransaction();
            }
        }
    }

    /** In turn to each partition. */
    private static void write(Kit kit, Producer<byte[], byte[]> producer, int partitions, List<String> values) {
        for (int i = 0; i < values.size(); i++) {
            producer.send(new ProducerRecord<>(kit.topic, i % partitions, null, Kit.bytes(values.get(i))));
        }
    }

    private static Map<TopicPartition, Long> ends(Kit kit, int partitions, IsolationLevel level) throws Exception {
        Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
        kit.parts(partitions).forEach(part -> specs.put(part, OffsetSpec.latest()));
        Map<TopicPartition, Long> found = new HashMap<>();
        Kit.await(kit.admin().listOffsets(specs, new ListOffsetsOptions(level)).all())
            .forEach((part, offset) -> found.put(part, offset.offset()));
        return found;
    }

    /** Everything below the ends, once no transaction is open: by partition, in order. */
    private static Map<Integer, List<String>> committed(Kit kit, int partitions) throws Exception {
        Map<TopicPartition, Long> ends = new HashMap<>();
        Kit.until("no transaction is open", () -> {
            ends.putAll(ends(kit, partitions, IsolationLevel.READ_UNCOMMITTED));
            return ends.equals(ends(kit, partitions, IsolationLevel.READ_COMMITTED));
        });
        Consumer<byte[], byte[]> consumer = kit.consumer("isolation.level", "read_committed");
        consumer.assign(kit.parts(partitions));
        consumer.seekToBeginning(kit.parts(partitions));
        Map<Integer, List<String>> read = new HashMap<>();
        Kit.until("the ends are reached", () -> {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                read.computeIfAbsent(record.partition(), key -> new ArrayList<>()).add(Kit.text(record.value()));
            }
            return ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
        });
        return read;
    }

    private static List<String> numbered(int from, int to) {
        return IntStream.range(from, to).mapToObj(Integer::toString).toList();
    }

    private static void whole(Kit kit) throws Exception {
        kit.create(2);
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        Map<Integer, List<String>> wanted = Map.of(0, new ArrayList<>(), 1, new ArrayList<>());
        for (int round = 0; round < 20; round++) {
            producer.beginTransaction();
            write(kit, producer, 2, numbered(1000, 1010));
            if (!Kit.IN_CHAOS) {
                producer.flush();
            }
            producer.abortTransaction();
            List<String> values = numbered(round * 10, round * 10 + 10);
            transact(producer, () -> write(kit, producer, 2, values));
            for (int i = 0; i < values.size(); i++) {
                wanted.get(i % 2).add(values.get(i));
            }
        }
        Kit.equal(wanted, committed(kit, 2), "what is committed");
    }

    private static void open(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> slow = transactional(kit, "slow");
        slow.beginTransaction();
        write(kit, slow, 1, List.of("slow"));
        slow.flush();
        kit.fill(1);
        Consumer<byte[], byte[]> reader = kit.consumer("isolation.level", "read_committed");
        reader.assign(kit.parts(1));
        reader.seekToBeginning(kit.parts(1));
        Kit.check(reader.poll(Duration.ofMillis(500)).isEmpty(), "read before it was committed");
        Kit.equal(Map.of(kit.part(0), 0L), reader.endOffsets(kit.parts(1)), "last stable offset");
        Kit.equal(2, kit.readAll(2, 1).size(), "what is not committed");
        slow.commitTransaction();
        List<ConsumerRecord<byte[], byte[]>> got = Kit.receive(reader, 2);
        Kit.equal("slow", Kit.text(got.get(0).value()), "first value");
        Kit.equal("0", Kit.text(got.get(1).value()), "second value");
    }

    private static ProducerState state(Kit kit) throws Exception {
        List<ProducerState> states = Kit.onceKnown(
            () -> kit.admin().describeProducers(List.of(kit.part(0))).partitionResult(kit.part(0))).activeProducers();
        Kit.equal(1, states.size(), "producers");
        return states.get(0);
    }

    private static void epochs(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        int before = -1;
        for (int round = 0; round < 5; round++) {
            String value = "" + round;
            producer.beginTransaction();
            write(kit, producer, 1, List.of(value));
            producer.flush();
            int now = state(kit).producerEpoch();
            Kit.check(now > before, "epoch " + now + " after " + before);
            before = now;
            producer.commitTransaction();
        }
        Kit.equal(Map.of(0, numbered(0, 5)), committed(kit, 1), "what is committed");
    }

    private static void fencing(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> zombie = transactional(kit, "writer");
        zombie.beginTransaction();
        write(kit, zombie, 1, List.of("from the dead"));
        zombie.flush();
        Producer<byte[], byte[]> heir = transactional(kit, "writer");
        transact(heir, () -> write(kit, heir, 1, List.of("heir")));
        fails(List.of(ProducerFencedException.class, InvalidProducerEpochException.class), zombie::commitTransaction);
        transact(heir, () -> write(kit, heir, 1, List.of("again")));
        Kit.equal(Map.of(0, List.of("heir", "again")), committed(kit, 1), "what is committed");
    }

    /** The exception itself, or what it was caused by. */
    private static void fails(List<Class<? extends Exception>> kinds, Kit.Step step) throws Exception {
        try {
            step.run();
        } catch (KafkaException failed) {
            Throwable cause = failed.getClass() == KafkaException.class ? failed.getCause() : failed;
            Kit.check(kinds.contains(cause.getClass()), "failed with " + failed + ", caused by " + cause);
            return;
        }
        throw new AssertionError("did not fail with " + kinds);
    }

    /** What `kafka-transactions forceTerminateTransaction` does. */
    private static void terminate(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        producer.beginTransaction();
        write(kit, producer, 1, List.of("never"));
        producer.flush();
        Kit.await(kit.admin().forceTerminateTransaction(kit.group + ".writer").result());
        Kit.equal(Map.of(), committed(kit, 1), "what is committed");
        fails(List.of(ProducerFencedException.class, InvalidProducerEpochException.class), producer::commitTransaction);
    }

    private static void abortByAdmin(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        producer.beginTransaction();
        write(kit, producer, 1, List.of("never"));
        producer.flush();
        ProducerState open = state(kit);
        Kit.equal(0L, open.currentTransactionStartOffset().getAsLong(), "start of what is open");
        Kit.await(kit.admin().abortTransaction(new AbortTransactionSpec(kit.part(0), open.producerId(),
            (short) open.producerEpoch(), Math.max(open.coordinatorEpoch().orElse(0), 0))).all());
        Kit.equal(Map.of(), committed(kit, 1), "what is committed");
        Kit.check(state(kit).currentTransactionStartOffset().isEmpty(), "it is still open");
        producer.abortTransaction();
    }

    private static Consumer<byte[], byte[]> member(Kit kit, String protocol, int records) throws Exception {
        Consumer<byte[], byte[]> member =
            kit.consumer("group.protocol", protocol, "isolation.level", "read_committed");
        member.subscribe(List.of(kit.topic));
        Kit.receive(member, records);
        return member;
    }

    private static void offsets(Kit kit, String protocol) throws Exception {
        kit.create(1);
        kit.fill(10);
        Consumer<byte[], byte[]> consumer = member(kit, protocol, 10);
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(Map.of(kit.part(0), new OffsetAndMetadata(3)), consumer.groupMetadata());
        producer.abortTransaction();
        Kit.equal(null, consumer.committed(kit.parts(1)).get(kit.part(0)), "after the abort");
        transact(producer, () -> producer.sendOffsetsToTransaction(
            Map.of(kit.part(0), new OffsetAndMetadata(7, "a note")), consumer.groupMetadata()));
        OffsetAndMetadata there = consumer.committed(kit.parts(1)).get(kit.part(0));
        Kit.equal(7L, there.offset(), "after the commit");
        Kit.equal("a note", there.metadata(), "metadata");
    }

    /** KIP-447: the generation goes with the offsets. */
    private static void strangers(Kit kit, String protocol) throws Exception {
        kit.create(1);
        kit.fill(2);
        Consumer<byte[], byte[]> consumer = member(kit, protocol, 2);
        ConsumerGroupMetadata stale = consumer.groupMetadata();
        consumer.close();
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        producer.beginTransaction();
        write(kit, producer, 1, List.of("never"));
        fails(List.of(CommitFailedException.class),
            () -> producer.sendOffsetsToTransaction(Map.of(kit.part(0), new OffsetAndMetadata(1)), stale));
        producer.abortTransaction();
        Kit.equal(Map.of(0, List.of("0", "1")), committed(kit, 1), "what is committed");
    }

    private static void refused(Kit kit) throws Exception {
        kit.create(1, "max.message.bytes", "10000");
        Producer<byte[], byte[]> producer = transactional(kit, "writer");
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(kit.topic, new byte[20_000]));
        fails(List.of(RecordTooLargeException.class), producer::commitTransaction);
        producer.abortTransaction();
        transact(producer, () -> write(kit, producer, 1, List.of("the next")));
        Kit.equal(Map.of(0, List.of("the next")), committed(kit, 1), "what is committed");
    }

    private static void timeout(Kit kit) throws Exception {
        try {
            transactional(kit, "writer", "transaction.timeout.ms", "900001");
        } catch (KafkaException refused) {
            Kit.check(refused.getMessage().contains("transaction timeout is larger"), "refused with " + refused);
            return;
        }
        throw new AssertionError("it was not refused");
    }

    private static void described(Kit kit) throws Exception {
        kit.create(2);
        String name = kit.group + ".writer";
        Producer<byte[], byte[]> producer = transactional(kit, "writer", "transaction.timeout.ms", "45000");
        producer.beginTransaction();
        write(kit, producer, 2, List.of("a", "b"));
        producer.flush();
        TransactionDescription open = Kit.await(kit.admin().describeTransactions(Set.of(name)).description(name));
        Kit.equal(TransactionState.ONGOING, open.state(), "state");
        Kit.equal(45_000L, open.transactionTimeoutMs(), "timeout");
        Kit.equal(kit.parts(2), open.topicPartitions(), "partitions");
        Kit.check(open.transactionStartTimeMs().getAsLong() > 1_700_000_000_000L, "start");
        Collection<TransactionListing> listed = Kit.await(kit.admin().listTransactions(new ListTransactionsOptions()
            .filterProducerIds(Set.of(open.producerId())).filterStates(Set.of(TransactionState.ONGOING))).all());
        Kit.equal(List.of(name), listed.stream().map(TransactionListing::transactionalId).toList(), "listed");
        Kit.equal(0, Kit.await(kit.admin().listTransactions(new ListTransactionsOptions()
            .filterProducerIds(Set.of(open.producerId())).filterOnDuration(600_000L)).all()).size(), "so old ones");
        producer.commitTransaction();
        Kit.until("it is complete", () -> {
            TransactionDescription now = Kit.await(kit.admin().describeTransactions(Set.of(name)).description(name));
            return now.state() == TransactionState.COMPLETE_COMMIT && now.topicPartitions().isEmpty();
        });
        Kit.refused(TransactionalIdNotFoundException.class,
            kit.admin().describeTransactions(Set.of(name + ".never")).description(name + ".never"));
    }
}
