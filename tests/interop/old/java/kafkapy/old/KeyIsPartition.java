package kafkapy.old;

import kafka.producer.Partitioner;
import kafka.utils.VerifiableProperties;

/** Sends each message to the partition that its partition key names. */
public final class KeyIsPartition implements Partitioner {
    public KeyIsPartition(VerifiableProperties properties) { }

    @Override
    public int partition(Object key, int partitions) {
        return (Integer) key;
    }
}
