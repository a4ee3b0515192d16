import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Kafka's assignors: a line in, a line out, fields separated by tabs.
 *
 * <pre>
 * assign NAME t=3,u=2 id|instance|t,u|t=0,u=1|generation|user data;...   ->  id|t=0,u=1;...   (or ! and what it threw)
 * data   NAME t=0,u=1 generation                                        ->  user data
 * </pre>
 * User data in hex, "-" for none; the members are put into the map in the order given.
 */
public class Assignors {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            String answer;
            try {
                answer = words[0].equals("assign") ? assign(words[1], words[2], words[3]) : data(words[1], words[2], words[3]);
            } catch (RuntimeException error) {
                answer = "!" + error;
            }
            System.out.println(answer);
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static String assign(String name, String topics, String members) {
        Node node = new Node(0, "localhost", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        for (TopicPartition topic : partitions(topics))
            for (int index = 0; index < topic.partition(); index++)
                infos.add(new PartitionInfo(topic.topic(), index, node, new Node[] {node}, new Node[] {node}));
        Cluster cluster = new Cluster("c", List.of(node), infos, Collections.emptySet(), Collections.emptySet());
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String member : members.split(";")) {
            String[] words = member.split("\\|", -1);
            List<String> wanted = words[2].isEmpty() ? List.of() : List.of(words[2].split(","));
            int generation = Integer.parseInt(words[4]);
            Optional<Integer> since = generation < 0 ? Optional.empty() : Optional.of(generation);
            Subscription one = new Subscription(
                wanted, buffer(words[5]), partitions(words[3]), since.orElse(-1), Optional.empty());
            one.setGroupInstanceId(words[1].isEmpty() ? Optional.empty() : Optional.of(words[1]));
            subscriptions.put(words[0], one);
        }
        Map<String, Assignment> shares =
            assignor(name).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        List<String> told = new ArrayList<>();
        new TreeMap<>(shares).forEach((member, share) -> told.add(member + "|" + text(share.partitions())));
        return String.join(";", told);
    }

    private static String data(String name, String partitions, String generation) {
        ConsumerPartitionAssignor assignor = assignor(name);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("g", Integer.parseInt(generation), "m", Optional.empty());
        assignor.onAssignment(new Assignment(partitions(partitions)), group);
        ByteBuffer data = assignor.subscriptionUserData(Collections.emptySet());
        if (data == null)
            return "-";
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static ByteBuffer buffer(String hex) {
        return hex.equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        if (!text.isEmpty())
            for (String one : text.split(",")) {
                String[] words = one.split("=");
                found.add(new TopicPartition(words[0], Integer.parseInt(words[1])));
            }
        return found;
    }

    private static String text(List<TopicPartition> partitions) {
        List<String> words = new ArrayList<>();
        for (TopicPartition one : partitions)
            words.add(one.topic() + "=" + one.partition());
        return String.join(",", words);
    }
}
