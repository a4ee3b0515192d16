package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Puts a record into the partition it names, and leaves the others to the default partitioner.
type named struct{ otherwise kgo.Partitioner }

func (p named) ForTopic(topic string) kgo.TopicPartitioner {
	return forTopic{p.otherwise.ForTopic(topic)}
}

type forTopic struct{ otherwise kgo.TopicPartitioner }

func (p forTopic) RequiresConsistency(*kgo.Record) bool { return true }

func (p forTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.otherwise.Partition(r, n)
}

func (it *client) produce(ctx context.Context, r request) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}
	options := []kgo.Opt{
		kgo.SeedBrokers(it.seeds), security(), kgo.ProducerBatchCompression(codecs[r.Codec]), kgo.RequiredAcks(acks[r.Acks]),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchMaxBytes(8 << 20),
		kgo.RecordPartitioner(named{kgo.StickyKeyPartitioner(nil)}), kgo.RecordRetries(3),
		kgo.AllowAutoTopicCreation(),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	records := make([]*kgo.Record, len(r.Records))
	for i, each := range r.Records {
		one := &kgo.Record{Topic: r.Topic, Key: unpack(each.Key), Value: unpack(each.Value), Partition: -1}
		if each.Partition != nil {
			one.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			one.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: *header[0], Value: unpack(header[1])})
		}
		records[i] = one
	}
	results := producer.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	placed := make([][2]int64, len(records))
	for i, one := range records {
		placed[i] = [2]int64{int64(one.Partition), one.Offset}
		if r.Acks == 0 {
			placed[i][1] = -1
		}
	}
	return placed, nil
}

func (it *client) fetch(ctx context.Context, r request) (any, error) {
	from := map[int32]kgo.Offset{}
	open := map[int32]bool{}
	for partition, offset := range r.Start {
		from[partition] = kgo.NewOffset().At(offset)
		if offset < r.End[partition] {
			open[partition] = true
		}
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(it.seeds), security(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	got := []record{}
	for len(open) > 0 {
		fetches := consumer.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("partition %d: %w", errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			if one.Offset < r.End[one.Partition] {
				got = append(got, describe(one))
			}
			if one.Offset >= r.End[one.Partition]-1 {
				delete(open, one.Partition)
			}
		})
	}
	return got, nil
}

func (it *client) consume(ctx context.Context, r request) (any, error) {
	topic := r.Topic
	options := []kgo.Opt{
		kgo.SeedBrokers(it.seeds), security(), kgo.ConsumerGroup(r.Group), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if r.ByPattern {
		topic = "^" + topic + "$"
		options = append(options, kgo.ConsumeRegex())
	}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumeTopics(topic))...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	waiting, stop := context.WithTimeout(ctx, time.Duration(r.TimeoutMs)*time.Millisecond)
	defer stop()
	got := []record{}
	for len(got) < r.Total && waiting.Err() == nil {
		fetches := consumer.PollRecords(waiting, r.Total-len(got))
		for _, one := range fetches.Errors() {
			if waiting.Err() == nil {
				return nil, one.Err
			}
		}
		fetches.EachRecord(func(one *kgo.Record) { got = append(got, describe(one)) })
	}
	if len(got) == 0 {
		return got, nil
	}
	return got, consumer.CommitUncommittedOffsets(ctx)
}

func describe(one *kgo.Record) record {
	timestamp := one.Timestamp.UnixMilli()
	headers := [][2]*string{}
	for _, header := range one.Headers {
		key := header.Key
		headers = append(headers, [2]*string{&key, pack(header.Value)})
	}
	return record{
		Partition: &one.Partition, Offset: one.Offset, Timestamp: &timestamp,
		Key: pack(one.Key), Value: pack(one.Value), Headers: headers,
	}
}
