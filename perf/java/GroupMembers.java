import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ConsumerConnector;

/**
 * Many of Kafka's high-level consumers in one process, all members of the same group, with one stream of one topic each.
 *
 * Arguments: the topic, then settings, each as key=value. Reads `join ID` and `leave ID` from standard input, one per
 * line, and starts each in a new thread. Ends at the end of the input.
 */
public final class GroupMembers {
    public static void main(String[] args) throws Exception {
        Map<String, ConsumerConnector> members = new ConcurrentHashMap<>();
        BufferedReader words = new BufferedReader(new InputStreamReader(System.in));
        for (String line = words.readLine(); line != null; line = words.readLine()) {
            String[] parts = line.split(" ");
            String id = parts[1];
            if (parts[0].equals("leave")) {
                new Thread(() -> members.remove(id).shutdown()).start();
                continue;
            }
            Properties settings = new Properties();
            for (int at = 1; at < args.length; at++) {
                int equals = args[at].indexOf('=');
                settings.setProperty(args[at].substring(0, equals), args[at].substring(equals + 1));
            }
            settings.setProperty("consumer.id", id);
            new Thread(() -> {
                ConsumerConnector member = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
                members.put(id, member);
                member.createMessageStreams(Map.of(args[0], 1));
            }).start();
        }
        Runtime.getRuntime().halt(0);
    }
}
