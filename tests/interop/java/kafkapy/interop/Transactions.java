package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, and consumers that read what was committed. */
final class Transactions {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Set<String> open = new HashSet<>();

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    Object handle(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "read_until": return readUntil(request);
            case "open_transactional": return openTransactional(request);
            case "transact": return transact(request);
            case "finish": return finish(request);
            case "close_transactional": return close(request);
            case "copy_in_transaction": return copy(request);
            default: return Exchange.NOT_MINE;
        }
    }

    private Object openTransactional(JsonNode request) {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", request.get("name").asText());
        config.put("transaction.timeout.ms", request.get("timeout_ms").asInt());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(request.get("name").asText(), producer);
        producer.initTransactions();
        return null;
    }

    private Object transact(JsonNode request) throws Exception {
        String name = request.get("name").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        if (open.add(name)) {
            producer.beginTransaction();
        }
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode each : request.get("records")) {
            JsonNode partition = each.get("partition");
            sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), partition.isNull() ? null : partition.asInt(),
                Exchange.unpack(each.get("key")), Exchange.unpack(each.get("value")))));
        }
        producer.flush();
        for (Future<?> each : sent) {
            each.get();
        }
        return request.get("outcome").asText().equals("open") ? null : finish(request);
    }

    private Object finish(JsonNode request) {
        String name = request.get("name").asText();
        open.remove(name);
        end(producers.get(name), request);
        return null;
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, JsonNode request) {
        if (request.get("outcome").asText().equals("commit")) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private Object close(JsonNode request) {
        String name = request.get("name").asText();
        open.remove(name);
        producers.remove(name).close(Duration.ZERO);
        return null;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, boolean committed, int atMost) {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        config.put("fetch.max.wait.ms", 50);
        config.put("max.poll.records", atMost);
        if (group != null) {
            config.put("group.id", group);
        }
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<Map<String, Object>> readUntil(JsonNode request) {
        String topic = request.get("topic").asText();
        String last = request.get("last").asText();
        Set<TopicPartition> unread = new HashSet<>();
        request.get("partitions").forEach(each -> unread.add(new TopicPartition(topic, each.asInt())));
        List<Map<String, Object>> got = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null, request.get("committed").asBoolean(), 5000)) {
            consumer.assign(unread);
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (!unread.isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not read to its end in 60 s: " + unread + " " + got);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    got.add(Exchange.describe(record));
                    if (last.equals(Exchange.pack(record.value()))) {
                        unread.remove(new TopicPartition(topic, record.partition()));
                    }
                }
            }
        }
        return got;
    }

    private List<Map<String, Object>> copy(JsonNode request) {
        int count = request.get("total").asInt();
        KafkaProducer<byte[], byte[]> producer = producers.get(request.get("name").asText());
        List<Map<String, Object>> got = new ArrayList<>();
        List<ProducerRecord<byte[], byte[]>> made = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request.get("group").asText(), true, count)) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (got.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(got.size() + " of " + count + " records in 60 s");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (got.size() == count) {
                        break; // it is not in `ends`, so that it comes again
                    }
                    got.add(Exchange.describe(record));
                    made.add(new ProducerRecord<>(request.get("target").asText(), record.partition(), null, upper(record.value())));
                    ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
            }
            producer.beginTransaction();
            made.forEach(producer::send);
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            end(producer, request);
        }
        return got;
    }

    private static byte[] upper(byte[] value) {
        return new String(value, java.nio.charset.StandardCharsets.ISO_8859_1).toUpperCase(java.util.Locale.ROOT)
            .getBytes(java.nio.charset.StandardCharsets.ISO_8859_1);
    }
}
