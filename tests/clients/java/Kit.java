import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a scenario works with: clients that are closed at its end, names of its own, loops that end. */
public final class Kit implements AutoCloseable {
    /** How long a client may take: longer while leaders die. */
    static final boolean IN_CHAOS =
        "cluster-chaos".equals(System.getenv("FENCEPOST_TEST_AGAINST"));
    static final long WAIT_S = IN_CHAOS ? 75 : 30;
    static final int NODES =
        Integer.parseInt(System.getenv().getOrDefault("FENCEPOST_TEST_NODES", "1"));
    static final short COPIES = (short) Math.min(NODES, 3);

    final String bootstrap;
    final String topic;
    final String group;
    private final List<AutoCloseable> open = new ArrayList<>();
    private Admin admin;

    Kit(String bootstrap, String scenario) {
        this.bootstrap = bootstrap;
        String stem = scenario + "." + ProcessHandle.current().pid();
        this.topic = "java." + stem;
        this.group = "java-group." + stem;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    interface Step {
        void run() throws Exception;
    }

    interface Asked<T> {
        Future<T> ask();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object wanted, Object got, String what) {
        check(wanted == null ? got == null : wanted.equals(got),
            what + ": wanted " + wanted + ", got " + got);
    }

    static <T> T await(Future<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    /** The future must fail with exactly this exception. */
    static void refused(Class<? extends Exception> kind, Future<?> future) throws Exception {
        try {
            Object got = await(future);
            throw new AssertionError("wanted " + kind.getSimpleName() + ", got " + got);
        } catch (ExecutionException failed) {
            equal(kind, failed.getCause().getClass(), "refused with " + failed.getCause());
        }
    }

    static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + WAIT_S * 1_000_000_000L;
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "waited in vain: " + what);
        }
    }

    synchronized <T extends AutoCloseable> T keep(T client) {
        open.add(client);
        return client;
    }

    synchronized Admin admin() {
        if (admin == null) {
            admin = keep(Admin.create(Map.of("bootstrap.servers", bootstrap)));
        }
        return admin;
    }

    void create(int partitions, String... settings) throws Exception {
        create(topic, partitions, settings);
    }

    void create(String name, int partitions, String... settings) throws Exception {
        NewTopic made = new NewTopic(name, partitions, COPIES).configs(pairs(settings));
        done(() -> admin().createTopics(List.of(made)).all(), TopicExistsException.class);
    }

    /**
     * While leaders die an answer may be lost with its broker. The client asks again by itself where it lost its connection,
     * and here where the broker lost the controller: what is asked for may have been done before.
     */
    static <T> void done(Asked<T> asked, Class<? extends Exception> before) throws Exception {
        until("it is done", () -> {
            try {
                await(asked.ask());
                return true;
            } catch (ExecutionException failed) {
                if (IN_CHAOS && before.isInstance(failed.getCause())) {
                    return true;
                }
                if (IN_CHAOS && failed.getCause() instanceof RetriableException) {
                    return false;
                }
                throw failed;
            }
        });
    }

    /** The answer, once the node that is asked knows of the topic: it may be behind the one that made it. */
    static <T> T onceKnown(Asked<T> asked) throws Exception {
        long deadline = System.nanoTime() + WAIT_S * 1_000_000_000L;
        while (true) {
            try {
                return await(asked.ask());
            } catch (ExecutionException failed) {
                boolean unknown = failed.getCause() instanceof UnknownTopicOrPartitionException;
                if (!unknown || System.nanoTime() > deadline) {
                    throw failed;
                }
            }
        }
    }

    static Map<String, String> pairs(String... alternating) {
        Map<String, String> made = new HashMap<>();
        for (int i = 0; i < alternating.length; i += 2) {
            made.put(alternating[i], alternating[i + 1]);
        }
        return made;
    }

    Producer<byte[], byte[]> producer(String... settings) {
        Map<String, Object> config = new HashMap<>(pairs(settings));
        config.put("bootstrap.servers", bootstrap);
        return keep(
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer()));
    }

    Consumer<byte[], byte[]> consumer(String... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("group.id", group);
        if (!pairs(settings).getOrDefault("group.protocol", "classic").equals("consumer")) {
            config.put("session.timeout.ms", "6000");
            config.put("heartbeat.interval.ms", "200");
        }
        config.putAll(pairs(settings));
        return keep(
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    }

    /** Send texts "0" … count-1 and wait for all; what the broker answered. */
    List<RecordMetadata> fill(int count, String... settings) throws Exception {
        Producer<byte[], byte[]> producer = producer(settings);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, bytes("" + i))));
        }
        List<RecordMetadata> done = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            done.add(await(one));
        }
        return done;
    }

    TopicPartition part(int number) {
        return new TopicPartition(topic, number);
    }

    Set<TopicPartition> parts(int count) {
        Set<TopicPartition> made = new java.util.HashSet<>();
        for (int i = 0; i < count; i++) {
            made.add(part(i));
        }
        return made;
    }

    static List<ConsumerRecord<byte[], byte[]>> receive(Consumer<byte[], byte[]> consumer, int count)
        throws Exception {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        until(count + " records", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(got::add);
            return got.size() >= count;
        });
        equal(count, got.size(), "records");
        return got;
    }

    List<ConsumerRecord<byte[], byte[]>> readAll(int count, int partitions) throws Exception {
        Consumer<byte[], byte[]> consumer = consumer();
        consumer.assign(parts(partitions));
        consumer.seekToBeginning(parts(partitions));
        return receive(consumer, count);
    }

    @Override
    public void close() throws Exception {
        List<AutoCloseable> all;
        synchronized (this) {
            all = new ArrayList<>(open);
        }
        for (AutoCloseable client : all) {
            if (client instanceof Producer<?, ?> producer) {
                producer.close(Duration.ofSeconds(1));
            } else if (client instanceof Consumer<?, ?> consumer) {
                try {
                    consumer.close(Duration.ofSeconds(2));
                } catch (java.util.ConcurrentModificationException inUse) {
                    consumer.wakeup(); // the scenario hangs in it
                }
            } else {
                client.close();
            }
        }
    }
}
