package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing and consuming. */
final class Exchange {
    static final Object NOT_MINE = new Object();
    private final String bootstrap;

    Exchange(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    Object handle(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "produce": return produce(request);
            case "fetch": return fetch(request);
            case "consume": return consume(request);
            case "offsets_for_times": return offsetsForTimes(request);
            case "watermarks": return watermarks(request);
            default: return NOT_MINE;
        }
    }

    private List<long[]> produce(JsonNode request) throws Exception {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", request.get("codec").asText());
        config.put("acks", request.get("acks").asText());
        if (!request.get("idempotent").asBoolean()) { // idempotence is the default of this client
            config.put("enable.idempotence", false);
        }
        config.put("linger.ms", 5);
        config.put("max.request.size", 8 << 20);
        config.put("buffer.memory", 64L << 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode each : request.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : each.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), unpack(header.get(1))));
                }
                JsonNode partition = each.get("partition");
                JsonNode timestamp = each.get("timestamp");
                sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), partition.isNull() ? null : partition.asInt(),
                    timestamp.isNull() ? null : timestamp.asLong(), unpack(each.get("key")), unpack(each.get("value")), headers)));
            }
        }
        List<long[]> placed = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            placed.add(new long[] {each.get().partition(), each.get().offset()});
        }
        return placed;
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "none");
        config.put("max.poll.records", 5000);
        config.put("fetch.max.wait.ms", 50); // closing waits for the last fetch, which has nothing to wait for
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<Map<String, Object>> fetch(JsonNode request) {
        String topic = request.get("topic").asText();
        Map<TopicPartition, Long> start = longs(topic, request.get("start"));
        Map<TopicPartition, Long> end = longs(topic, request.get("end"));
        List<Map<String, Object>> got = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(start.keySet());
            start.forEach(consumer::seek);
            Set<TopicPartition> open = new HashSet<>();
            start.forEach((place, offset) -> {
                if (offset < end.get(place)) {
                    open.add(place);
                }
            });
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (!open.isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not read in 60 s: " + open);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < end.get(place)) {
                        got.add(describe(record));
                    }
                    if (record.offset() >= end.get(place) - 1) {
                        open.remove(place);
                    }
                }
            }
        } catch (OffsetOutOfRangeException failure) {
            throw new org.apache.kafka.common.errors.OffsetOutOfRangeException(failure.getMessage());
        }
        return got;
    }

    static Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record) {
        List<Object[]> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(new Object[] {header.key(), pack(header.value())});
        }
        Map<String, Object> described = new HashMap<>();
        described.put("partition", record.partition());
        described.put("offset", record.offset());
        described.put("timestamp", record.timestamp());
        described.put("key", pack(record.key()));
        described.put("value", pack(record.value()));
        described.put("headers", headers);
        return described;
    }

    private List<Map<String, Object>> consume(JsonNode request) {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", request.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        String topic = request.get("topic").asText();
        boolean byPattern = request.get("by_pattern").asBoolean();
        int count = request.get("total").asInt();
        config.put("max.poll.records", count);
        List<Map<String, Object>> got = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (byPattern) {
                consumer.subscribe(Pattern.compile("^" + topic + "$"));
            } else {
                consumer.subscribe(List.of(topic));
            }
            long deadline = System.nanoTime() + request.get("timeout_ms").asLong() * 1_000_000L;
            while (got.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    got.add(describe(record));
                }
            }
            if (!got.isEmpty()) {
                consumer.commitSync();
            }
        }
        return got;
    }

    private Map<Integer, Long> offsetsForTimes(JsonNode request) {
        Map<Integer, Long> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> each
                    : consumer.offsetsForTimes(longs(request.get("topic").asText(), request.get("times"))).entrySet()) {
                found.put(each.getKey().partition(), each.getValue() == null ? null : each.getValue().offset());
            }
        }
        return found;
    }

    private Map<Integer, long[]> watermarks(JsonNode request) {
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode partition : request.get("partitions")) {
            places.add(new TopicPartition(request.get("topic").asText(), partition.asInt()));
        }
        Map<Integer, long[]> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, Long> first = consumer.beginningOffsets(places);
            Map<TopicPartition, Long> last = consumer.endOffsets(places);
            places.forEach(place -> found.put(place.partition(), new long[] {first.get(place), last.get(place)}));
        }
        return found;
    }

    static Map<TopicPartition, Long> longs(String topic, JsonNode byPartition) {
        Map<TopicPartition, Long> values = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> each = byPartition.fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> entry = each.next();
            values.put(new TopicPartition(topic, Integer.parseInt(entry.getKey())), entry.getValue().asLong());
        }
        return values;
    }

    static byte[] unpack(JsonNode value) {
        return value.isNull() ? null : Base64.getDecoder().decode(value.asText());
    }

    static String pack(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }
}
