package kafkapy.reference;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/**
 * Apache Kafka's own cleaner on the directories of partitions, at a time that is given.
 *
 * Reads lines of tab-separated DIRECTORY, time in ms, first dirty offset, bytes for the map of keys, and settings of
 * the topic as KEY=VALUE with commas between. Everything before the active segment is cleaned; all records count as
 * stable. Answers each line with the first offset that is dirty afterwards.
 */
public final class Clean {
    private static final int DAY_MS = 86_400_000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            Properties settings = new Properties();
            for (String pair : fields[4].split(",")) {
                String[] parts = pair.split("=", 2);
                settings.put(parts[0], parts[1]);
            }
            System.out.println(clean(
                new File(fields[0]), Long.parseLong(fields[1]), Long.parseLong(fields[2]),
                Integer.parseInt(fields[3]), new LogConfig(settings)));
        }
    }

    private static long clean(File directory, long now, long firstDirty, int memory, LogConfig config) throws Exception {
        Time time = new FixedTime(now);
        UnifiedLog log = UnifiedLog.apply(
            directory, config, 0L, 0L, new NoScheduler(), new BrokerTopicStats(false), time, DAY_MS,
            new ProducerStateManagerConfig(DAY_MS, false), DAY_MS, new LogDirFailureChannel(1), true,
            Option.empty(), false, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        TopicPartition partition = log.topicPartition();
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(memory), 65536, 65536, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time), time,
            ignored -> BoxedUnit.UNIT);
        long end = log.activeSegment().baseOffset();
        Tuple2<Object, CleanerStats> done = cleaner.doClean(
            new LogToClean(partition, log, firstDirty, end, false), now);
        log.close();
        return (Long) done._1();
    }

    /** A clock that stands still. */
    private static final class FixedTime implements Time {
        private final long now;

        FixedTime(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    /** Runs nothing: what would be deleted later stays, for the test to look at or not. */
    private static final class NoScheduler implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return (ScheduledFuture<?>) Proxy.newProxyInstance(
                Clean.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (proxy, method, given) -> false);
        }

        @Override
        public void resizeThreadPool(int newSize) {
        }
    }
}
