import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;

/**
 * Writes random histories of a Rate with a quota, and what Apache Kafka computes of them. To make history.txt again:
 *
 *     javac -cp 'LIBS/*' RateHistory.java && java -cp 'LIBS/*:.' RateHistory 24 7 40 > history.txt
 *
 * where LIBS has the jars of kafka_2.13:3.9.1. The arguments are: how many histories, the random seed, steps of each.
 * A history begins with "history SAMPLES SAMPLE_MS LIMIT"; each step is "TIME_MS VALUE RATE WINDOW_MS THROTTLE_MS".
 */
public class RateHistory {
    private static final double[] LIMITS = {1, 5, 10, 0.5, 1000, 0, 3.7};

    public static void main(String[] args) {
        Random random = new Random(Long.parseLong(args[1]));
        StringBuilder out = new StringBuilder();
        for (int history = 0; history < Integer.parseInt(args[0]); history++)
            write(random, Integer.parseInt(args[2]), out);
        System.out.print(out);
    }

    private static void write(Random random, int steps, StringBuilder out) {
        int samples = 1 + random.nextInt(12);
        int seconds = 1 + random.nextInt(3);
        double limit = LIMITS[random.nextInt(LIMITS.length)];
        out.append("history " + samples + " " + seconds * 1000 + " " + limit + "\n");
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("sensor", new MetricConfig()
                .timeWindow(seconds, TimeUnit.SECONDS).samples(samples).quota(new Quota(limit, true)));
            MetricName name = metrics.metricName("rate", "group");
            sensor.add(name, new Rate(), null);
            KafkaMetric metric = metrics.metric(name);
            long time = 1_000_000;
            for (int step = 0; step < steps; step++) {
                int kind = random.nextInt(10);
                time += kind < 4 ? random.nextInt(200) : kind < 7 ? random.nextInt(3000) : kind == 7 ? random.nextInt(40000) : 0;
                double value = random.nextInt(20) == 0 ? -1 : random.nextInt(3) == 0 ? 1 : random.nextInt(100) / 4.0;
                long throttle = 0;
                try {
                    sensor.record(value, time);
                } catch (QuotaViolationException e) {
                    throttle = kafka.utils.QuotaUtils.throttleTime(e, time);
                }
                double rate = metric.measurable().measure(metric.config(), time);
                long window = ((Rate) metric.measurable()).windowSize(metric.config(), time);
                out.append(time + " " + value + " " + rate + " " + window + " " + throttle + "\n");
            }
        }
    }
}
