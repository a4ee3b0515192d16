package kafkapy.old;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.message.Message;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What Kafka 0.10.2 has besides: timestamps, and a Java consumer that needs no ZooKeeper. */
public final class LaterClients extends Clients {
    public LaterClients(String bootstrap) {
        super(bootstrap);
    }

    @Override
    public Object handle(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "fetch_java":
                return fetchJava(new TopicPartition(request.get("topic").asText(), 0), request);
            case "offset_for_time":
                return offsetForTime(new TopicPartition(request.get("topic").asText(), 0), request.get("time").asLong());
            default:
                return super.handle(request);
        }
    }

    @Override
    protected ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) throws IOException {
        JsonNode time = record.get("timestamp");
        Long timestamp = time.isNull() ? null : time.asLong();
        return new ProducerRecord<>(topic, 0, timestamp, bytes(record.get("key")), bytes(record.get("value")));
    }

    @Override
    protected long timestampOf(Message message) {
        return message.timestamp();
    }

    private KafkaConsumer<byte[], byte[]> consumer(int size) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.put("max.partition.fetch.bytes", size);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<Map<String, Object>> fetchJava(TopicPartition partition, JsonNode request) {
        long end = request.get("end").asLong();
        List<Map<String, Object>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request.get("size").asInt())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, request.get("start").asLong());
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(1000)) {
                    if (each.offset() < end) {
                        Map<String, Object> record = new HashMap<>();
                        record.put("offset", each.offset());
                        record.put("timestamp", each.timestamp());
                        record.put("key", each.key());
                        record.put("value", each.value());
                        found.add(record);
                    }
                }
            }
        }
        return found;
    }

    private Long offsetForTime(TopicPartition partition, long time) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(1 << 20)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
            return found == null ? null : found.offset();
        }
    }
}
