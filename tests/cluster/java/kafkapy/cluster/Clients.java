package kafkapy.cluster;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java clients that write histories (tests/cluster/history.py), each in a thread. The one argument is a JSON array of
 * them: role, client, file, bootstrap, and what the role needs. Commands are lines on standard input: the name of a
 * client, then "stop" or {@code finish {"TOPIC": [END, ...]}}, as for tests/cluster/rdkafka_clients.py.
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PADDING = "." + "x".repeat(60);

    private Clients() { }

    public static void main(String[] arguments) throws Exception {
        Map<String, Client> clients = new HashMap<>();
        for (JsonNode options : JSON.readTree(arguments[0])) {
            clients.put(options.get("client").asText(), new Client(options));
        }
        List<Thread> threads = new ArrayList<>();
        for (Client client : clients.values()) {
            threads.add(new Thread(client));
            threads.get(threads.size() - 1).start();
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            Client client = clients.get(words[0]);
            if (words[1].equals("finish")) {
                client.finish(JSON.readTree(words[2]));
            }
            client.stopped.countDown();
        }
        for (Thread thread : threads) {
            thread.join(10_000);
        }
        Runtime.getRuntime().halt(0); // clients still run only if the test has failed without stopping them
    }

    /** The events of one client. */
    private static final class Writer {
        private final PrintWriter file;

        Writer(JsonNode options) throws IOException {
            file = new PrintWriter(Files.newBufferedWriter(Paths.get(options.get("file").asText())));
            ObjectNode begin = (ObjectNode) options.deepCopy();
            begin.remove("file");
            write("begin", begin);
        }

        synchronized void write(String kind, ObjectNode event) {
            event.put("e", kind);
            event.put("t", now());
            file.println(event.toString());
        }

        void record(String kind, String topic, int partition, String value, long offset) {
            ObjectNode event = JSON.createObjectNode().put("topic", topic).put("p", partition).put("v", value);
            write(kind, offset < 0 ? event : event.put("o", offset));
        }

        void error(String what) {
            write("error", JSON.createObjectNode().put("error", what));
        }

        synchronized void close() {
            write("done", JSON.createObjectNode());
            file.close();
        }
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static String name(String value) {
        int end = value.indexOf('.');
        return end < 0 ? value : value.substring(0, end);
    }

    /** One client. */
    private static final class Client implements Runnable {
        final CountDownLatch stopped = new CountDownLatch(1);
        private final JsonNode options;
        private final String name;
        private final Writer history;
        private volatile Map<TopicPartition, Long> ends;

        Client(JsonNode options) throws IOException {
            this.options = options;
            this.name = options.get("client").asText();
            this.history = new Writer(options);
        }

        void finish(JsonNode named) {
            Map<TopicPartition, Long> wanted = new HashMap<>();
            named.fields().forEachRemaining(topic -> {
                for (int partition = 0; partition < topic.getValue().size(); partition++) {
                    wanted.put(new TopicPartition(topic.getKey(), partition), topic.getValue().get(partition).asLong());
                }
            });
            ends = wanted;
        }

        @Override
        public void run() {
            try {
                switch (options.get("role").asText()) {
                    case "producer": produce(); break;
                    case "consumer": consume(); break;
                    case "member": beMember(); break;
                    case "copier": copy(); break;
                    default: throw new IllegalArgumentException(options.toString());
                }
            } catch (Exception failure) {
                history.error(failure.toString());
                failure.printStackTrace();
            }
            history.close();
        }

        private KafkaProducer<String, String> producer(Map<String, Object> more) {
            Map<String, Object> config = new HashMap<>(more);
            config.put("bootstrap.servers", options.get("bootstrap").asText());
            config.put("linger.ms", 10);
            config.put("request.timeout.ms", 5000);
            config.put("delivery.timeout.ms", 120_000);
            config.put("reconnect.backoff.max.ms", 500);
            return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        }

        private void produce() throws Exception {
            Map<String, Object> config = new HashMap<>();
            config.put("acks", options.get("acks").asText());
            config.put("enable.idempotence", options.path("idempotent").asBoolean());
            config.put("compression.type", options.path("compression").asText("none"));
            try (KafkaProducer<String, String> producer = producer(config)) {
                long begin = System.nanoTime();
                String topic = options.get("topic").asText();
                for (long number = 0;; number++) {
                    long due = begin + number * 1_000_000_000L / options.get("rate").asLong();
                    if (stopped.await(Math.max(0, due - System.nanoTime()), TimeUnit.NANOSECONDS)) {
                        break;
                    }
                    String value = name + ":" + number;
                    int partition = (int) (number % options.get("partitions").asLong());
                    history.record("sent", topic, partition, value, -1);
                    producer.send(new ProducerRecord<>(topic, partition, null, value + PADDING), (done, error) -> {
                        if (error == null) {
                            history.record("acked", topic, partition, value, done.offset());
                        } else {
                            history.write("failed", JSON.createObjectNode().put("topic", topic).put("p", partition)
                                .put("v", value).put("error", error.toString()));
                        }
                    });
                }
                producer.flush();
            }
        }

        private KafkaConsumer<String, String> consumer(Map<String, Object> more) {
            Map<String, Object> config = new HashMap<>(more);
            config.put("bootstrap.servers", options.get("bootstrap").asText());
            config.put("enable.auto.commit", false);
            config.put("auto.offset.reset", "none");
            config.putIfAbsent("isolation.level", options.path("isolation").asText("read_uncommitted"));
            config.put("fetch.max.wait.ms", 100);
            config.put("client.rack", options.path("rack").asText(""));
            config.put("request.timeout.ms", 5000);
            config.put("default.api.timeout.ms", 10_000);
            config.put("reconnect.backoff.max.ms", 500);
            if (options.has("group")) {
                config.put("group.id", options.get("group").asText());
            }
            return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        }

        private List<TopicPartition> everything() {
            List<TopicPartition> all = new ArrayList<>();
            options.get("topics").fields().forEachRemaining(topic -> {
                for (int partition = 0; partition < topic.getValue().asInt(); partition++) {
                    all.add(new TopicPartition(topic.getKey(), partition));
                }
            });
            return all;
        }

        private void saw(ConsumerRecord<String, String> record) {
            history.write("seen", JSON.createObjectNode().put("topic", record.topic()).put("p", record.partition())
                .put("o", record.offset()).put("v", name(record.value())).put("epoch", record.leaderEpoch().orElse(-1)));
        }

        private void consume() {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                consumer.assign(everything());
                everything().forEach(each -> consumer.seek(each, 0));
                while (true) {
                    consumer.poll(Duration.ofMillis(200)).forEach(this::saw);
                    if (ends != null && ends.entrySet().stream().allMatch(each -> consumer.position(each.getKey()) >= each.getValue())) {
                        return;
                    }
                }
            }
        }

        /** Seeks to what is committed, or to the beginning; repeats this until it is known. */
        private Map<TopicPartition, Long> continueAtCommitted(KafkaConsumer<String, String> consumer, Collection<TopicPartition> partitions) {
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (true) {
                double asked = now();
                try {
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new HashSet<>(partitions));
                    Map<TopicPartition, Long> from = new HashMap<>();
                    for (TopicPartition each : partitions) {
                        from.put(each, committed.get(each) == null ? 0L : committed.get(each).offset());
                        history.write("assigned", JSON.createObjectNode().put("topic", each.topic()).put("p", each.partition())
                            .put("o", from.get(each)).put("t0", asked));
                        consumer.seek(each, from.get(each));
                    }
                    return from;
                } catch (RetriableException again) {
                    if (System.nanoTime() > deadline) {
                        throw again;
                    }
                }
            }
        }

        /**
         * Commits an offset of a partition that no member of the group reads; repeats this until it is acknowledged.
         * A coordinator that was replaced while it was frozen may still answer OffsetFetch with its old offsets, but it
         * cannot acknowledge a commit. The coordinator that acknowledges this one has the newest offsets.
         */
        private void commitMark(KafkaConsumer<String, String> consumer, TopicPartition unread, long mark) {
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (true) {
                try {
                    consumer.commitSync(Map.of(unread, new OffsetAndMetadata(mark)));
                    return;
                } catch (RetriableException again) {
                    if (System.nanoTime() > deadline) {
                        throw again;
                    }
                }
            }
        }

        private void beMember() {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("session.timeout.ms", 6000, "heartbeat.interval.ms", 1000))) {
                Set<String> topics = new HashSet<>();
                options.get("topics").fieldNames().forEachRemaining(topics::add);
                Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>(); // and not committed yet
                consumer.subscribe(topics, new ConsumerRebalanceListener() {
                    @Override
                    public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }

                    @Override
                    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                        read.clear(); // the member that gets these partitions reads from the last commit
                        continueAtCommitted(consumer, assigned);
                    }
                });
                double nextLook = 0;
                while (true) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        saw(record);
                        read.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    if (!read.isEmpty()) {
                        double asked = now();
                        try {
                            consumer.commitSync(read);
                            read.forEach((each, at) -> history.write("committed", JSON.createObjectNode().put("topic", each.topic())
                                .put("p", each.partition()).put("o", at.offset()).put("t0", asked)));
                            read.clear();
                        } catch (CommitFailedException | RebalanceInProgressException | TimeoutException notNow) {
                            continue; // again with the next records, or when nothing more comes
                        }
                    }
                    if (ends != null && now() > nextLook) {
                        nextLook = now() + 0.5;
                        try {
                            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(ends.keySet());
                            if (ends.entrySet().stream().allMatch(each -> each.getValue() == 0 || committed.get(each.getKey()) != null
                                    && committed.get(each.getKey()).offset() >= each.getValue())) {
                                return;
                            }
                        } catch (TimeoutException notNow) {
                            continue;
                        }
                    }
                }
            }
        }

        private void copy() {
            String source = options.get("source").asText();
            String target = options.get("topic").asText();
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < options.get("partitions").asInt(); partition++) {
                all.add(new TopicPartition(source, partition));
            }
            KafkaProducer<String, String> producer = null;
            long number = 0;
            int transactions = 0;
            long marks = 0;
            TopicPartition unread = new TopicPartition(target, 0);
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", "read_committed", "max.poll.records", 100))) {
                consumer.assign(all);
                Map<TopicPartition, Long> position = new HashMap<>();
                while (true) {
                    if (producer == null) {
                        producer = transactional();
                        commitMark(consumer, unread, ++marks);
                        position = continueAtCommitted(consumer, all);
                    }
                    Map<TopicPartition, Long> at = position;
                    if (ends != null && ends.entrySet().stream().allMatch(each -> at.get(each.getKey()) >= each.getValue())) {
                        break;
                    }
                    Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
                    List<ProducerRecord<String, String>> made = new ArrayList<>();
                    com.fasterxml.jackson.databind.node.ArrayNode values = JSON.createArrayNode();
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                        String value = name + ":" + number++ + "|" + name(record.value());
                        values.add(value);
                        history.record("sent", target, record.partition(), value, -1);
                        made.add(new ProducerRecord<>(target, record.partition(), null, value + PADDING));
                        read.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    if (made.isEmpty()) {
                        continue;
                    }
                    String outcome = "unknown";
                    try {
                        producer.beginTransaction();
                        made.forEach(producer::send);
                        producer.sendOffsetsToTransaction(read, consumer.groupMetadata());
                        boolean commit = ++transactions % 5 != 0; // some are aborted on purpose
                        end(producer, commit);
                        outcome = commit ? "committed" : "aborted";
                    } catch (KafkaException failure) {
                        producer.close(Duration.ZERO); // the next one's initTransactions completes or aborts the transaction
                        producer = null;
                    }
                    ObjectNode ended = JSON.createObjectNode().put("outcome", outcome);
                    ended.set("values", values);
                    history.write("ended", ended);
                    if (outcome.equals("committed")) {
                        for (Map.Entry<TopicPartition, OffsetAndMetadata> each : read.entrySet()) {
                            position.put(each.getKey(), each.getValue().offset());
                        }
                    } else if (producer != null) {
                        commitMark(consumer, unread, ++marks);
                        position = continueAtCommitted(consumer, all);
                    }
                }
            } finally {
                if (producer != null) {
                    producer.close(Duration.ofSeconds(10));
                }
            }
        }

        private KafkaProducer<String, String> transactional() {
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (true) {
                KafkaProducer<String, String> producer = producer(Map.of(
                    "transactional.id", name, "transaction.timeout.ms", 20_000, "max.block.ms", 20_000));
                try {
                    producer.initTransactions();
                    return producer;
                } catch (TimeoutException again) {
                    producer.close(Duration.ZERO);
                    if (System.nanoTime() > deadline) {
                        throw again;
                    }
                }
            }
        }

        /** Ends the transaction; what times out may be repeated, and has the same outcome then. */
        private static void end(KafkaProducer<String, String> producer, boolean commit) {
            for (int left = 3;; left--) {
                try {
                    if (commit) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                    return;
                } catch (TimeoutException again) {
                    if (left == 0) {
                        throw again;
                    }
                }
            }
        }
    }
}
