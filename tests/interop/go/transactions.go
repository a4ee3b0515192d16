package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A transactional producer that is kept between requests.
type transactional struct {
	options []kgo.Opt
	client  *kgo.Client
	open    bool
}

func (it *client) transact(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case "read_until":
		return it.readUntil(ctx, r)
	case "open_transactional":
		return nil, it.openTransactional(ctx, r)
	case "copy_in_transaction":
		return it.copyInTransaction(ctx, r)
	}
	producer := it.transactional[r.Name]
	switch r.Op {
	case "transact":
		return nil, producer.transact(ctx, r)
	case "finish":
		return nil, producer.finish(ctx, r.Outcome)
	case "close_transactional":
		producer.client.Close()
		delete(it.transactional, r.Name)
		return nil, nil
	default:
		return nil, fmt.Errorf("there is no %q", r.Op)
	}
}

func (it *client) openTransactional(ctx context.Context, r request) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(it.seeds), security(), kgo.TransactionalID(r.Name), kgo.RecordPartitioner(named{kgo.StickyKeyPartitioner(nil)}),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.TransactionTimeout(time.Duration(r.TimeoutMs) * time.Millisecond),
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	it.transactional[r.Name] = &transactional{options, producer, false}
	_, _, err = producer.ProducerID(ctx) // which this client would ask for when it produces
	return err
}

func (t *transactional) transact(ctx context.Context, r request) error {
	if !t.open {
		if err := t.client.BeginTransaction(); err != nil {
			return err
		}
		t.open = true
	}
	records := make([]*kgo.Record, len(r.Records))
	for i, each := range r.Records {
		records[i] = &kgo.Record{Topic: r.Topic, Key: unpack(each.Key), Value: unpack(each.Value), Partition: -1}
		if each.Partition != nil {
			records[i].Partition = *each.Partition
		}
	}
	if err := t.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	if r.Outcome == "open" {
		return nil
	}
	return t.finish(ctx, r.Outcome)
}

func (t *transactional) finish(ctx context.Context, outcome string) error {
	t.open = false
	return t.client.EndTransaction(ctx, kgo.TransactionEndTry(outcome == "commit"))
}

func (it *client) readUntil(ctx context.Context, r request) (any, error) {
	partitions := []int32{}
	if err := json.Unmarshal(r.Partitions, &partitions); err != nil {
		return nil, err
	}
	from, unread := map[int32]kgo.Offset{}, map[int32]bool{}
	for _, partition := range partitions {
		from[partition], unread[partition] = kgo.NewOffset().AtStart(), true
	}
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(it.seeds), security(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: from}),
		kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	got, last := []record{}, unpack(r.Last)
	for len(unread) > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records, then %w", len(got), err)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			got = append(got, describe(one))
			if bytes.Equal(one.Value, last) {
				delete(unread, one.Partition)
			}
		})
	}
	return got, nil
}

// One round of a session that reads in a group and writes in transactions, under the same transactional id.
func (it *client) copyInTransaction(ctx context.Context, r request) (any, error) {
	session, err := kgo.NewGroupTransactSession(append(it.transactional[r.Name].options,
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.Balancers(kgo.RangeBalancer()),
	)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	got := []record{}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for len(got) < r.Total {
		fetches := session.PollRecords(ctx, r.Total-len(got))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, one := range fetches.Records() {
			got = append(got, describe(one))
			made := &kgo.Record{Topic: r.Target, Value: bytes.ToUpper(one.Value), Partition: one.Partition}
			if err := session.ProduceSync(ctx, made).FirstErr(); err != nil {
				return nil, err
			}
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(r.Outcome == "commit"))
	if err == nil && committed != (r.Outcome == "commit") {
		err = errors.New("the session did not end as it was told to")
	}
	return got, err
}
