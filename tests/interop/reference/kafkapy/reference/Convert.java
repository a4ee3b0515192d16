package kafkapy.reference;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.function.Supplier;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Kafka's own validation and conversion of records, one case a line: words in, words out.
 *
 * <pre>
 * down MAGIC FIRST_OFFSET HEX
 * validate MAGIC CODEC APPEND_TIME BEFORE_MS AFTER_MS COMPACT BASE_OFFSET EPOCH NOW HEX    (CODEC -1: as produced)
 * </pre>
 *
 * The answer is "ok HEX", for validate with the largest timestamp before the bytes, or "error CODE what".
 */
public final class Convert {
    private static final HexFormat HEX = HexFormat.of();
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private Convert() { }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ");
                answer = "ok " + (words[0].equals("down") ? down(words) : validate(words));
            } catch (Throwable failure) {
                Throwable reason = failure instanceof RecordValidationException refused ? refused.invalidException() : failure;
                answer = "error " + Errors.forException(reason).code() + " " + String.valueOf(reason).replace('\n', ' ');
            }
            out.println(answer);
        }
        out.flush();
    }

    private static String down(String[] words) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[3])));
        return hex(records.downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), clock(0)).records());
    }

    private static String validate(String[] words) {
        byte magic = Byte.parseByte(words[1]);
        int codec = Integer.parseInt(words[2]);
        TimestampType type = words[3].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[10])));
        CompressionType source = analyze(records);
        records = MemoryRecords.readableRecords((ByteBuffer) records.buffer().limit(records.validBytes()));
        CompressionType target = codec < 0 ? source : CompressionType.forId(codec);
        LogValidator.ValidationResult result = new LogValidator(
            records, PARTITION, clock(Long.parseLong(words[9])), source, Compression.of(target).build(),
            words[6].equals("1"), magic, type, Long.parseLong(words[4]), Long.parseLong(words[5]),
            Integer.parseInt(words[8]), AppendOrigin.CLIENT, MetadataVersion.latestTesting()
        ).validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(Long.parseLong(words[7])), new NoMetrics(), BufferSupplier.NO_CACHING);
        return result.maxTimestampMs + " " + hex(result.validatedRecords);
    }

    /** What UnifiedLog does before: it cannot be called without a log. */
    private static CompressionType analyze(MemoryRecords records) {
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && batch.baseOffset() != 0) {
                throw new InvalidRecordException("base offset");
            }
            if (!batch.isValid()) {
                throw new CorruptRecordException("checksum");
            }
            if (batch.compressionType() != CompressionType.NONE) {
                source = batch.compressionType();
            }
        }
        return source;
    }

    private static String hex(org.apache.kafka.common.record.Records records) {
        ByteBuffer buffer = ((MemoryRecords) records).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }

    private static Time clock(long now) {
        return new Time() {
            @Override public long milliseconds() {
                return now;
            }

            @Override public long nanoseconds() {
                return now * 1_000_000;
            }

            @Override public void sleep(long ms) { }

            @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
        };
    }

    private static final class NoMetrics implements LogValidator.MetricsRecorder {
        @Override public void recordInvalidMagic() { }

        @Override public void recordInvalidOffset() { }

        @Override public void recordInvalidSequence() { }

        @Override public void recordInvalidChecksums() { }

        @Override public void recordNoKeyCompactedTopic() { }
    }
}
