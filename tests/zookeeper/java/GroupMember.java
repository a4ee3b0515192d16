import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a group as Kafka's high-level consumer is one: says each record that it is given, one a line.
 *
 * Arguments: the topic, or a white list that begins with ^; how many streams; then settings, each as key=value.
 */
public final class GroupMember {
    public static void main(String[] args) {
        Properties settings = new Properties();
        for (int at = 2; at < args.length; at++) {
            int equals = args[at].indexOf('=');
            settings.setProperty(args[at].substring(0, equals), args[at].substring(equals + 1));
        }
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        Runtime.getRuntime().addShutdownHook(new Thread(connector::shutdown));
        int streams = Integer.parseInt(args[1]);
        List<KafkaStream<byte[], byte[]>> made;
        if (args[0].startsWith("^")) {
            made = connector.createMessageStreamsByFilter(new Whitelist(args[0].substring(1)), streams);
        } else {
            Map<String, Integer> counts = new HashMap<>();
            counts.put(args[0], streams);
            made = connector.createMessageStreams(counts).get(args[0]);
        }
        System.out.println("ready");
        for (KafkaStream<byte[], byte[]> stream : made) {
            new Thread(() -> say(stream)).start();
        }
    }

    private static void say(KafkaStream<byte[], byte[]> stream) {
        ConsumerIterator<byte[], byte[]> records = stream.iterator();
        while (records.hasNext()) {
            MessageAndMetadata<byte[], byte[]> one = records.next();
            System.out.println(one.topic() + " " + one.partition() + " " + one.offset());
        }
    }
}
