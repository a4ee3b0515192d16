package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/** The admin client. */
final class Administer implements AutoCloseable {
    private final Admin admin;

    Administer(String bootstrap) {
        Map<String, Object> config = Security.properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("default.api.timeout.ms", 30000);
        admin = Admin.create(config);
    }

    @Override
    public void close() {
        admin.close();
    }

    Object handle(JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        switch (request.get("op").asText()) {
            case "cluster": return cluster();
            case "topic_names": return admin.listTopics().names().get();
            case "partitions_of": return partitionsOf(topic);
            case "create_topic": return createTopic(topic, request);
            case "add_partitions":
                return admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("total").asInt()))).all().get();
            case "delete_topic": return admin.deleteTopics(List.of(topic)).all().get();
            case "topic_configs": return configs(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            case "broker_configs": return configs(new ConfigResource(ConfigResource.Type.BROKER, request.get("broker").asText()));
            case "set_topic_configs": return setConfigs(topic, request.get("configs"));
            case "reset_topic_config":
                return alter(topic, List.of(new AlterConfigOp(new ConfigEntry(request.get("name").asText(), null), AlterConfigOp.OpType.DELETE)));
            case "delete_records": return deleteRecords(topic, request.get("before"));
            case "offsets_of_max_timestamp": return offsetsOfMaxTimestamp(topic, request.get("partitions"));
            case "log_dirs": return logDirs(topic);
            case "producers": return producers(new TopicPartition(topic, request.get("partition").asInt()));
            case "elect_leaders": return electLeaders(topic, request.get("partitions"));
            default: throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private Object cluster() throws Exception {
        DescribeClusterResult told = admin.describeCluster();
        List<Object[]> nodes = new ArrayList<>();
        for (Node node : told.nodes().get()) {
            nodes.add(new Object[] {node.id(), node.host(), node.port()});
        }
        return Map.of("cluster_id", told.clusterId().get(), "controller", told.controller().get().id(), "nodes", nodes);
    }

    private Object partitionsOf(String topic) throws Exception {
        TopicDescription told = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Map<Integer, Object[]> partitions = new TreeMap<>();
        for (TopicPartitionInfo each : told.partitions()) {
            partitions.put(each.partition(), new Object[] {each.leader().id(), ids(each.replicas()), ids(each.isr())});
        }
        return partitions;
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private Object createTopic(String topic, JsonNode request) throws Exception {
        NewTopic wanted = new NewTopic(topic, request.get("partitions").asInt(), (short) 1).configs(strings(request.get("configs")));
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(request.get("validate_only").asBoolean());
        return admin.createTopics(List.of(wanted), options).all().get();
    }

    private Object configs(ConfigResource resource) throws Exception {
        Map<String, String> values = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object setConfigs(String topic, JsonNode configs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        strings(configs).forEach((name, value) -> operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        return alter(topic, operations);
    }

    private Object alter(String topic, List<AlterConfigOp> operations) throws Exception {
        return admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), operations)).all().get();
    }

    private Object deleteRecords(String topic, JsonNode before) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
        Exchange.longs(topic, before).forEach((place, offset) -> wanted.put(place, RecordsToDelete.beforeOffset(offset)));
        Map<Integer, Long> low = new TreeMap<>();
        for (Map.Entry<TopicPartition, ?> each : wanted.entrySet()) {
            TopicPartition place = each.getKey();
            low.put(place.partition(), admin.deleteRecords(Map.of(place, wanted.get(place))).lowWatermarks().get(place).get().lowWatermark());
        }
        return low;
    }

    private Object offsetsOfMaxTimestamp(String topic, JsonNode partitions) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        partitions.forEach(partition -> wanted.put(new TopicPartition(topic, partition.asInt()), OffsetSpec.maxTimestamp()));
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.listOffsets(wanted).all().get().forEach((place, found) -> offsets.put(place.partition(), found.offset()));
        return offsets;
    }

    private Object logDirs(String topic) throws Exception {
        Set<Integer> brokers = new HashSet<>(ids(new ArrayList<>(admin.describeCluster().nodes().get())));
        Map<Integer, Long> sizes = new TreeMap<>();
        for (Map<String, LogDirDescription> directories : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription directory : directories.values()) {
                if (directory.error() != null) {
                    throw directory.error();
                }
                directory.replicaInfos().forEach((place, info) -> {
                    if (place.topic().equals(topic)) {
                        sizes.put(place.partition(), info.size());
                    }
                });
            }
        }
        return sizes;
    }

    private Object producers(TopicPartition place) throws Exception {
        List<Map<String, Long>> states = new ArrayList<>();
        for (ProducerState state : admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers()) {
            states.add(Map.of("producer_id", state.producerId(), "epoch", (long) state.producerEpoch(),
                "last_sequence", (long) state.lastSequence(), "last_timestamp", state.lastTimestamp()));
        }
        return states;
    }

    private Object electLeaders(String topic, JsonNode partitions) throws Exception {
        Set<TopicPartition> wanted = new HashSet<>();
        partitions.forEach(partition -> wanted.add(new TopicPartition(topic, partition.asInt())));
        Map<Integer, Short> codes = new TreeMap<>();
        Map<TopicPartition, Optional<Throwable>> told = admin.electLeaders(ElectionType.PREFERRED, wanted).partitions().get();
        told.forEach((place, error) -> codes.put(place.partition(), error.map(each -> Errors.forException(each).code()).orElse((short) 0)));
        return codes;
    }

    private static Map<String, String> strings(JsonNode node) {
        if (node == null) {
            return Collections.emptyMap();
        }
        Map<String, String> values = new TreeMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> each = node.fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> entry = each.next();
            values.put(entry.getKey(), entry.getValue().asText());
        }
        return values;
    }
}
