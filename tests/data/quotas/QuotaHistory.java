import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.ClientSensors;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import kafka.server.QuotaType;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

/** Answers the lines of histories with Kafka's own quota managers; the README says what the lines are. */
public class QuotaHistory {
    static long now;

    static final Time TIME = new Time() {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000L; }
        public long hiResClockMs() { return now; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
        public Timer timer(long timeoutMs) { throw new UnsupportedOperationException(); }
        public Timer timer(java.time.Duration timeout) { throw new UnsupportedOperationException(); }
    };

    static Option<String> name(String word) {
        return word.equals("-") ? Option.empty() : Option.apply(word);
    }

    static String plain(String word) {
        return word.equals("\"\"") ? "" : word;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(new java.io.BufferedOutputStream(System.out), false, "UTF-8");
        Metrics metrics = null;
        ClientQuotaManager manager = null;
        String kind = "";
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer = "";
            if (words[0].equals("new")) {
                if (manager != null) manager.shutdown();
                kind = words[1];
                now = Long.parseLong(words[4]);
                metrics = new Metrics(new MetricConfig(), Collections.emptyList(), TIME, false);
                ClientQuotaManagerConfig config =
                    new ClientQuotaManagerConfig(Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                if (kind.equals("bytes"))
                    manager = new ClientQuotaManager(config, metrics, QuotaType.Produce$.MODULE$, TIME, "", Option.empty());
                else if (kind.equals("time"))
                    manager = new ClientRequestQuotaManager(config, metrics, TIME, "", Option.empty());
                else
                    manager = new ControllerMutationQuotaManager(config, metrics, TIME, "", Option.empty());
            } else if (words[0].equals("quota")) {
                Option<String> client = name(words[2]);
                Option<String> plain = client.isEmpty() ? client : Option.apply(Sanitizer.desanitize(client.get()));
                Option<Quota> quota =
                    words[3].equals("-") ? Option.empty() : Option.apply(new Quota(Double.parseDouble(words[3]), true));
                manager.updateQuota(name(words[1]), plain, client, quota);
            } else {
                now += Long.parseLong(words[1]);
                String client = plain(words[3]);
                double value = Double.parseDouble(words[4]);
                Session session = new Session(
                    new KafkaPrincipal("User", words[2]), InetAddress.getLoopbackAddress());
                long throttle = 0;
                if (words[0].equals("record")) {
                    throttle = manager.recordAndGetThrottleTimeMs(session, client, value, now);
                } else if (words[0].equals("add")) {
                    manager.recordNoThrottle(session, client, value);
                } else {
                    ControllerMutationQuotaManager mutations = (ControllerMutationQuotaManager) manager;
                    ControllerMutationQuota quota = words[0].equals("strict")
                        ? mutations.newStrictQuotaFor(session, client)
                        : mutations.newPermissiveQuotaFor(session, client);
                    try {
                        quota.record(value);
                    } catch (ThrottlingQuotaExceededException e) {
                        // its time is asked for below
                    }
                    throttle = quota.throttleTime();
                }
                ClientSensors sensors = manager.getOrCreateQuotaSensors(session, client);
                String user = sensors.metricTags().get("user").get();
                String id = sensors.metricTags().get("client-id").get();
                String window = "-";
                double used = 0;
                for (KafkaMetric metric : metrics.metrics().values()) {
                    Map<String, String> tags = metric.metricName().tags();
                    String name = metric.metricName().name();
                    if (user.equals(tags.get("user")) && id.equals(tags.get("client-id"))
                            && (name.equals("byte-rate") || name.equals("request-time") || name.equals("tokens"))) {
                        used = metric.measurable().measure(metric.config(), now);
                        if (metric.measurable() instanceof Rate)
                            window = "" + ((Rate) metric.measurable()).windowSize(metric.config(), now);
                    }
                }
                answer = "[" + user + "] [" + id + "] " + throttle + " " + window + " " + used;
            }
            out.println(answer);
        }
        out.flush();
        System.exit(0);
    }
}
