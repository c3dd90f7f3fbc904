import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTopicException;

/** kafka-clients reads without a group. */
final class ConsumeScenarios {
    private ConsumeScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        known.put("a_seek_goes_anywhere", ConsumeScenarios::seeks);
        known.put("offsets_are_found_by_time", ConsumeScenarios::times);
        known.put("an_offset_out_of_range_is_told", ConsumeScenarios::outOfRange);
        known.put("a_waiting_fetch_is_woken", ConsumeScenarios::longPoll);
        known.put("a_fetch_session_misses_nothing", ConsumeScenarios::session);
        known.put("pause_and_resume_take_effect", ConsumeScenarios::pause);
        known.put("isolation_levels_agree_without_transactions", ConsumeScenarios::isolation);
        known.put("an_impossible_topic_is_told_to_a_reader", ConsumeScenarios::impossibleTopic);
    }

    private static void seeks(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(200);
        Consumer<byte[], byte[]> consumer = kit.consumer("max.poll.records", "1");
        consumer.assign(kit.parts(1));
        for (long offset : List.of(150L, 3L, 199L, 0L)) {
            consumer.seek(kit.part(0), offset);
            ConsumerRecord<byte[], byte[]> got = Kit.receive(consumer, 1).get(0);
            Kit.equal(offset, got.offset(), "offset");
            Kit.equal("" + offset, Kit.text(got.value()), "value");
        }
        consumer.seekToEnd(kit.parts(1));
        Kit.equal(200L, consumer.position(kit.part(0)), "position at the end");
        consumer.seekToBeginning(kit.parts(1));
        Kit.equal(0L, consumer.position(kit.part(0)), "position at the start");
    }

    private static void times(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer = kit.producer();
        for (long when : List.of(1000L, 2000L, 3000L)) {
            Kit.await(producer.send(
                new ProducerRecord<>(kit.topic, 0, 1_700_000_000_000L + when, null, Kit.bytes("x"))));
        }
        Consumer<byte[], byte[]> consumer = kit.consumer();
        TopicPartition part = kit.part(0);
        long base = 1_700_000_000_000L;
        Kit.equal(0L, consumer.offsetsForTimes(Map.of(part, base)).get(part).offset(), "before all");
        Kit.equal(1L, consumer.offsetsForTimes(Map.of(part, base + 1001)).get(part).offset(), "between");
        Kit.equal(null, consumer.offsetsForTimes(Map.of(part, base + 3001)).get(part), "after all");
        Kit.equal(Map.of(part, 0L), consumer.beginningOffsets(List.of(part)), "beginning");
        Kit.equal(Map.of(part, 3L), consumer.endOffsets(List.of(part)), "end");
    }

    private static void outOfRange(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(5);
        Consumer<byte[], byte[]> consumer = kit.consumer("auto.offset.reset", "none");
        consumer.assign(kit.parts(1));
        consumer.seek(kit.part(0), 77);
        try {
            Kit.receive(consumer, 1);
            throw new AssertionError("nothing was told");
        } catch (OffsetOutOfRangeException told) {
            Kit.equal(Map.of(kit.part(0), 77L), told.offsetOutOfRangePartitions(), "partitions");
        }
    }

    private static void longPoll(Kit kit) throws Exception {
        kit.create(1);
        Consumer<byte[], byte[]> consumer = kit.consumer("fetch.max.wait.ms", "25000");
        consumer.assign(kit.parts(1));
        consumer.seekToBeginning(kit.parts(1));
        Kit.check(consumer.poll(Duration.ofMillis(500)).isEmpty(), "nothing is there yet");
        long started = System.nanoTime();
        kit.fill(1);
        Kit.receive(consumer, 1);
        // A leader that dies meanwhile costs both clients a search for the next one, which has no limit that anybody promises.
        boolean inTime = System.nanoTime() - started < 12_000_000_000L;
        Kit.check(inTime || Kit.IN_CHAOS, "answered at the deadline only");
    }

    /** Only partitions with news are in the answers of an incremental session (KIP-227). */
    private static void session(Kit kit) throws Exception {
        int partitions = 40;
        kit.create(partitions);
        Consumer<byte[], byte[]> consumer = kit.consumer("fetch.max.wait.ms", "100");
        consumer.assign(kit.parts(partitions));
        consumer.seekToBeginning(kit.parts(partitions));
        Producer<byte[], byte[]> producer = kit.producer();
        Random random = new Random(7);
        Set<String> wanted = new HashSet<>();
        Set<String> got = new HashSet<>();
        for (int round = 0; round < 30; round++) {
            int number = random.nextInt(partitions);
            wanted.add(number + "/" + round);
            producer.send(
                new ProducerRecord<>(kit.topic, number, null, Kit.bytes(number + "/" + round)));
            producer.flush();
            if (round % 10 == 5) { // the session forgets some partitions and learns them again
                consumer.assign(kit.parts(partitions / 2));
                consumer.poll(Duration.ofMillis(50)).forEach(r -> got.add(Kit.text(r.value())));
                Set<TopicPartition> others = kit.parts(partitions);
                others.removeAll(kit.parts(partitions / 2));
                consumer.assign(kit.parts(partitions));
                consumer.seekToBeginning(others);
            }
            consumer.poll(Duration.ofMillis(50)).forEach(r -> got.add(Kit.text(r.value())));
        }
        Kit.until("every write", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(r -> got.add(Kit.text(r.value())));
            return got.equals(wanted);
        });
    }

    private static void pause(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(10);
        Consumer<byte[], byte[]> consumer = kit.consumer();
        consumer.assign(kit.parts(1));
        consumer.seekToBeginning(kit.parts(1));
        consumer.pause(kit.parts(1));
        Kit.check(consumer.poll(Duration.ofMillis(400)).isEmpty(), "paused");
        consumer.resume(kit.parts(1));
        Kit.receive(consumer, 10);
    }

    private static void isolation(Kit kit) throws Exception {
        kit.create(1);
        kit.fill(50);
        for (String level : List.of("read_committed", "read_uncommitted")) {
            Consumer<byte[], byte[]> consumer = kit.consumer("isolation.level", level);
            consumer.assign(kit.parts(1));
            consumer.seekToBeginning(kit.parts(1));
            Kit.receive(consumer, 50);
            Kit.equal(Map.of(kit.part(0), 50L), consumer.endOffsets(kit.parts(1)), "end, " + level);
        }
    }

    private static void impossibleTopic(Kit kit) throws Exception {
        Consumer<byte[], byte[]> consumer = kit.consumer();
        consumer.subscribe(List.of("no spaces"));
        try {
            consumer.poll(Duration.ofSeconds(10));
            throw new AssertionError("nothing was told");
        } catch (InvalidTopicException told) {
            Kit.equal(Set.of("no spaces"), told.invalidTopics(), "topics");
        }
    }
}
