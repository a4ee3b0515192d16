package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Rounds with one client after another, each with properties of its own: see tests/harness/clients/rounds.py. */
public final class Rounds {
    private Rounds() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = Main.JSON.readTree(line);
            ObjectNode answer = Main.JSON.createObjectNode();
            try {
                answer.set("result", Main.JSON.valueToTree(round(request)));
            } catch (Exception failure) {
                answer.put("error", -1);
                StringBuilder reasons = new StringBuilder();
                for (Throwable reason = failure; reason != null; reason = reason.getCause()) {
                    reasons.append(reason).append("; ");
                }
                answer.put("message", reasons.toString());
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static List<String> round(JsonNode request) {
        Map<String, Object> properties = new HashMap<>();
        request.get("properties").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        String topic = request.get("topic").asText();
        JsonNode values = request.get("values");
        write(new HashMap<>(properties), topic, values);
        return read(properties, topic, values.size());
    }

    private static void write(Map<String, Object> config, String topic, JsonNode values) {
        config.put("transactional.id", topic);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "aborted"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            values.forEach(value -> producer.send(new ProducerRecord<>(topic, value.asText())));
            producer.commitTransaction();
        }
    }

    private static List<String> read(Map<String, Object> config, String topic, int count) {
        config.put("group.id", topic);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("fetch.max.wait.ms", 50);
        List<String> got = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (got.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    got.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return got;
    }
}
