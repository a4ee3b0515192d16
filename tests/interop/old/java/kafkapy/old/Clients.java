package kafkapy.old;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Scala producer and SimpleConsumer, and the Java producer, of Kafka 0.8.2 and 0.10.2. All topics have one partition. */
public class Clients implements AutoCloseable {
    protected final String bootstrap;
    private final SimpleConsumer consumer;

    public Clients(String bootstrap) {
        this.bootstrap = bootstrap;
        int colon = bootstrap.lastIndexOf(':');
        String host = bootstrap.substring(0, colon);
        consumer = new SimpleConsumer(host, Integer.parseInt(bootstrap.substring(colon + 1)), 30_000, 1 << 20, "old");
    }

    @Override
    public void close() {
        consumer.close();
    }

    public Object handle(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        switch (request.get("op").asText()) {
            case "produce_scala":
                return produceScala(topic, request);
            case "produce_java":
                return produceJava(topic, request);
            case "fetch_simple":
                return fetchSimple(topic, request);
            case "segment_offsets":
                return segmentOffsets(topic, request.get("time").asLong(), request.get("count").asInt());
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }

    private List<Long> produceScala(String topic, JsonNode request) throws IOException {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", bootstrap);
        properties.put("compression.codec", request.get("codec").asText());
        properties.put("request.required.acks", "-1");
        properties.put("partitioner.class", KeyIsPartition.class.getName());
        properties.put("message.send.max.retries", "0");
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(properties));
        try {
            // A list goes out as one set: single messages one after the other, or one wrapper.
            List<KeyedMessage<byte[], byte[]>> messages = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                messages.add(new KeyedMessage<>(topic, bytes(record.get("key")), 0, bytes(record.get("value"))));
            }
            producer.send(messages);
        } finally {
            producer.close();
        }
        return List.of();
    }

    private List<Long> produceJava(String topic, JsonNode request) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", request.get("codec").asText());
        config.put("acks", "all");
        config.put("linger.ms", "20");
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(record(topic, record)));
            }
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get().offset());
            }
        }
        return offsets;
    }

    protected ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) throws IOException {
        return new ProducerRecord<>(topic, 0, bytes(record.get("key")), bytes(record.get("value")));
    }

    protected long timestampOf(Message message) {
        return -1;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return copy;
    }

    private List<Map<String, Object>> fetchSimple(String topic, JsonNode request) {
        long offset = request.get("start").asLong();
        long end = request.get("end").asLong();
        int size = request.get("size").asInt();
        List<Map<String, Object>> found = new ArrayList<>();
        while (offset < end) {
            FetchResponse response = consumer.fetch(
                new FetchRequestBuilder().clientId("old").addFetch(topic, 0, offset, size).maxWait(1000).minBytes(1).build());
            if (response.hasError()) {
                throw new Refused(response.errorCode(topic, 0), "fetch at " + offset);
            }
            long before = offset;
            for (MessageAndOffset each : response.messageSet(topic, 0)) {
                if (each.offset() >= offset && each.offset() < end) { // a wrapper may begin earlier
                    Map<String, Object> record = new HashMap<>();
                    record.put("offset", each.offset());
                    record.put("timestamp", timestampOf(each.message()));
                    record.put("key", bytes(each.message().key()));
                    record.put("value", bytes(each.message().payload()));
                    found.add(record);
                }
                offset = Math.max(offset, each.nextOffset());
            }
            if (offset == before) {
                throw new IllegalStateException("no whole message in " + size + " bytes at offset " + offset);
            }
        }
        return found;
    }

    private List<Long> segmentOffsets(String topic, long time, int count) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> wanted = new HashMap<>();
        wanted.put(new TopicAndPartition(topic, 0), new PartitionOffsetRequestInfo(time, count));
        OffsetResponse response = consumer.getOffsetsBefore(new OffsetRequest(wanted, (short) 0, "old"));
        if (response.hasError()) {
            throw new Refused(response.errorCode(topic, 0), "offsets before " + time);
        }
        List<Long> offsets = new ArrayList<>();
        for (long offset : response.offsets(topic, 0)) {
            offsets.add(offset);
        }
        return offsets;
    }
}
