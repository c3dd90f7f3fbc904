import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** kafka-clients writes. */
final class ProduceScenarios {
    private ProduceScenarios() {}

    static void register(Map<String, Scenarios.Body> known) {
        known.put("every_level_of_acks_writes_every_record", ProduceScenarios::acks);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            known.put("records_pass_through_" + codec, kit -> codec(kit, codec));
        }
        known.put("nulls_and_headers_are_kept", ProduceScenarios::nulls);
        known.put("an_idempotent_producer_keeps_order", ProduceScenarios::idempotence);
        known.put("a_record_over_the_limit_is_refused", ProduceScenarios::tooLarge);
        known.put("a_first_write_creates_the_topic", ProduceScenarios::autoCreation);
        known.put("an_impossible_name_is_refused", ProduceScenarios::impossibleName);
        known.put("a_compacted_topic_wants_keys", ProduceScenarios::compacted);
        known.put("log_append_time_is_the_brokers", ProduceScenarios::logAppendTime);
    }

    private static void acks(Kit kit) throws Exception {
        kit.create(1);
        for (String acks : List.of("0", "1", "all")) {
            String idempotent = acks.equals("all") ? "true" : "false";
            kit.fill(100, "acks", acks, "enable.idempotence", idempotent);
        }
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(300, 1);
        for (int i = 0; i < 300; i++) {
            Kit.equal("" + i % 100, Kit.text(got.get(i).value()), "value at " + i);
            Kit.equal((long) i, got.get(i).offset(), "offset");
        }
    }

    private static void codec(Kit kit, String codec) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer =
            kit.producer("compression.type", codec, "linger.ms", "20");
        List<String> values = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            String value = ("words that repeat " + i + " ").repeat(40);
            values.add(value);
            producer.send(new ProducerRecord<>(
                kit.topic, 0, 1_700_000_000_000L + i, Kit.bytes("k"), Kit.bytes(value)));
        }
        producer.flush();
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(200, 1);
        for (int i = 0; i < 200; i++) {
            Kit.equal(values.get(i), Kit.text(got.get(i).value()), "value at " + i);
            Kit.equal(1_700_000_000_000L + i, got.get(i).timestamp(), "timestamp");
        }
    }

    private static void nulls(Kit kit) throws Exception {
        kit.create(1);
        Producer<byte[], byte[]> producer = kit.producer();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(kit.topic, null, null);
        record.headers().add(new RecordHeader("a", Kit.bytes("1")));
        record.headers().add(new RecordHeader("none", null));
        record.headers().add(new RecordHeader("a", Kit.bytes("2")));
        Kit.await(producer.send(record));
        Kit.await(producer.send(new ProducerRecord<>(kit.topic, new byte[0], new byte[0])));
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(2, 1);
        Kit.check(got.get(0).key() == null && got.get(0).value() == null, "nulls");
        Kit.check(got.get(1).key().length == 0 && got.get(1).value().length == 0, "empty");
        List<String> headers = new ArrayList<>();
        got.get(0).headers().forEach(
            h -> headers.add(h.key() + "=" + (h.value() == null ? "-" : Kit.text(h.value()))));
        Kit.equal(List.of("a=1", "none=-", "a=2"), headers, "headers");
    }

    private static void idempotence(Kit kit) throws Exception {
        kit.create(1);
        List<RecordMetadata> sent = kit.fill(
            2000, "enable.idempotence", "true", "linger.ms", "0", "batch.size", "200",
            "max.in.flight.requests.per.connection", "5");
        for (int i = 0; i < sent.size(); i++) {
            Kit.equal((long) i, sent.get(i).offset(), "offset of record " + i);
        }
        List<ConsumerRecord<byte[], byte[]>> got = kit.readAll(2000, 1);
        for (int i = 0; i < got.size(); i++) {
            Kit.equal("" + i, Kit.text(got.get(i).value()), "value at " + i);
        }
    }

    private static void tooLarge(Kit kit) throws Exception {
        kit.create(1, "max.message.bytes", "100000");
        Producer<byte[], byte[]> producer = kit.producer();
        Kit.await(producer.send(new ProducerRecord<>(kit.topic, new byte[90_000])));
        Kit.refused(
            RecordTooLargeException.class,
            producer.send(new ProducerRecord<>(kit.topic, new byte[200_000])));
        Kit.equal(1L, Kit.await(producer.send(new ProducerRecord<>(kit.topic, new byte[1]))).offset(),
            "the next record's offset");
    }

    private static void autoCreation(Kit kit) throws Exception {
        Kit.equal(0L, kit.fill(1).get(0).offset(), "first offset");
        Kit.equal(1, kit.readAll(1, 1).size(), "records");
    }

    private static void impossibleName(Kit kit) throws Exception {
        try {
            Kit.refused(
                InvalidTopicException.class,
                kit.producer("max.block.ms", "5000").send(
                    new ProducerRecord<>("not a name", Kit.bytes("x"))));
        } catch (ExecutionException unexpected) {
            throw new AssertionError(unexpected);
        }
    }

    private static void compacted(Kit kit) throws Exception {
        kit.create(1, "cleanup.policy", "compact");
        Producer<byte[], byte[]> producer = kit.producer();
        Kit.await(producer.send(new ProducerRecord<>(kit.topic, Kit.bytes("k"), Kit.bytes("v"))));
        Kit.refused(
            InvalidRecordException.class,
            producer.send(new ProducerRecord<>(kit.topic, Kit.bytes("no key"))));
    }

    private static void logAppendTime(Kit kit) throws Exception {
        kit.create(1, "message.timestamp.type", "LogAppendTime");
        RecordMetadata sent = Kit.await(
            kit.producer().send(new ProducerRecord<>(kit.topic, 0, 1L, null, Kit.bytes("x"))));
        ConsumerRecord<byte[], byte[]> got = kit.readAll(1, 1).get(0);
        Kit.equal(TimestampType.LOG_APPEND_TIME, got.timestampType(), "type");
        Kit.check(got.timestamp() > 1_700_000_000_000L, "a time of today");
        Kit.equal(got.timestamp(), sent.timestamp(), "the acknowledgement's time");
    }
}
