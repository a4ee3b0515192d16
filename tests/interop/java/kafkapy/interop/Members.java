package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Group members: commands and events are those of ../python/host.py. */
public final class Members {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private Members() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Member> members = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = Main.JSON.readTree(line);
            String name = command.get("member").asText();
            switch (command.get("op").asText()) {
                case "join":
                    members.put(name, new Member(arguments[0], command));
                    members.get(name).start();
                    break;
                case "leave": members.get(name).leave(); break;
                case "stall": members.get(name).stall(true); break;
                default: members.get(name).stall(false);
            }
        }
        members.values().forEach(Member::leave);
        for (Member member : members.values()) {
            member.join(20_000);
        }
        System.exit(0);
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String bootstrap;
        private final JsonNode wanted;
        private final String topic;
        private KafkaConsumer<byte[], byte[]> consumer;
        private final List<long[]> unsaved = new ArrayList<>(); // runs of which no commit was acknowledged yet
        private int generation = -1;
        private boolean stalled;
        private boolean leaving;

        Member(String bootstrap, JsonNode wanted) {
            this.bootstrap = bootstrap;
            this.wanted = wanted;
            this.topic = wanted.get("topic").asText();
        }

        synchronized void stall(boolean now) {
            stalled = now;
            notifyAll();
        }

        synchronized void leave() {
            leaving = true;
            notifyAll();
        }

        private synchronized boolean goesOn() throws InterruptedException {
            while (stalled && !leaving) {
                wait();
            }
            return !leaving;
        }

        private void emit(String event, Object... about) {
            Map<String, Object> all = new LinkedHashMap<>();
            all.put("member", wanted.get("member").asText());
            all.put("event", event);
            for (int i = 0; i < about.length; i += 2) {
                all.put((String) about[i], about[i + 1]);
            }
            synchronized (System.out) {
                try {
                    System.out.println(Main.JSON.writeValueAsString(all));
                } catch (java.io.IOException impossible) {
                    throw new IllegalStateException(impossible);
                }
                System.out.flush();
            }
        }

        @Override
        public void run() {
            Map<String, Object> config = Security.properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", wanted.get("group").asText());
            config.put("partition.assignment.strategy", ASSIGNORS.get(wanted.get("assignor").asText()));
            config.put("session.timeout.ms", wanted.get("session_ms").asInt());
            config.put("max.poll.interval.ms", wanted.get("rebalance_ms").asInt());
            config.put("heartbeat.interval.ms", 200);
            config.put("enable.auto.commit", false);
            config.put("auto.offset.reset", "earliest");
            config.put("fetch.max.wait.ms", 100);
            config.put("enable.metrics.push", false);
            if (!wanted.get("instance").isNull()) {
                config.put("group.instance.id", wanted.get("instance").asText());
            }
            try (KafkaConsumer<byte[], byte[]> made = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer = made;
                consumer.subscribe(List.of(topic), this);
                while (goesOn()) {
                    take(consumer.poll(Duration.ofMillis(100)));
                }
            } catch (Exception failure) {
                emit("failed", "code", Errors.forException(failure).code(), "message", failure.toString());
                return;
            }
            emit("left");
        }

        private void take(ConsumerRecords<byte[], byte[]> records) {
            List<long[]> runs = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> one : records) {
                long[] last = runs.isEmpty() ? null : runs.get(runs.size() - 1);
                if (last != null && last[0] == one.partition() && last[2] == one.offset() - 1) {
                    last[2] = one.offset();
                } else {
                    runs.add(new long[] {one.partition(), one.offset(), one.offset()});
                }
            }
            if (!runs.isEmpty()) {
                emit("records", "generation", generation, "runs", runs);
                unsaved.addAll(runs);
            }
            if (unsaved.isEmpty()) {
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            unsaved.forEach(run -> ends.put(new TopicPartition(topic, (int) run[0]), new OffsetAndMetadata(run[2] + 1)));
            try {
                consumer.commitSync(ends);
            } catch (CommitFailedException | RebalanceInProgressException failure) {
                emit("commit_failed", "generation", generation, "runs", unsaved, "code", Errors.forException(failure).code());
                return;
            }
            emit("committed", "generation", generation, "runs", unsaved);
            unsaved.clear();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            generation = consumer.groupMetadata().generationId();
            emit("assigned", "generation", generation, "id", consumer.groupMetadata().memberId(), "owned", numbers(consumer.assignment()));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            forget(gone);
            emit("revoked", "generation", generation, "partitions", numbers(gone));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> gone) {
            forget(gone);
            emit("lost", "generation", generation, "partitions", numbers(gone));
        }

        private void forget(Collection<TopicPartition> gone) {
            unsaved.removeIf(run -> gone.contains(new TopicPartition(topic, (int) run[0])));
        }

        private static TreeSet<Integer> numbers(Collection<TopicPartition> places) {
            TreeSet<Integer> found = new TreeSet<>();
            places.forEach(each -> found.add(each.partition()));
            return found;
        }
    }
}
