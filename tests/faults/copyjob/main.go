// A job that consumes, transforms and produces in transactions, with the offsets it has read in the same transaction.
//
// copyjob BOOTSTRAP SOURCE SINK PARTITIONS GROUP ID SEED: a copy has partition and offset of its original as its key,
// and goes to a partition chosen at random. It says a line for each transaction, "committed N" or "aborted N", and ends
// with code 3 where only a new producer can go on. Now and then it aborts a transaction of its own accord, or kills itself
// when the offsets are in a transaction that is not ended.
//
// Through franz-go: in librdkafka 2.16 the offsets of a transaction may wait for ever once their broker was away
// (confluentinc/librdkafka issue 5456).
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	fenced   = 3
	aborts   = 0.1
	deaths   = 0.01
	together = 40 // records of a transaction, at most

	txnOffsetCommit = 28
)

// Dies when it is told that offsets are in the transaction.
type dying struct{ random *rand.Rand }

func (it dying) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == txnOffsetCommit && it.random.Float64() < deaths {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

var _ kgo.HookBrokerRead = dying{}

func main() {
	bootstrap, source, sink, group, id := os.Args[1], os.Args[2], os.Args[3], os.Args[5], os.Args[6]
	partitions, seed := number(os.Args[4]), number(os.Args[7])
	random := rand.New(rand.NewSource(seed))
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(20*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(50*time.Millisecond),
		kgo.SessionTimeout(2*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.WithHooks(dying{rand.New(rand.NewSource(seed + 1))}), // such answers come one by one
		kgo.MetadataMinAge(20*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	)
	if err != nil {
		end(err)
	}
	ctx := context.Background()
	// At once: a transaction that a dead predecessor has left open holds its offsets back.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		end(err)
	}
	for {
		fetches := session.PollRecords(ctx, 1+random.Intn(together))
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			end(err)
		}
		produced := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(one *kgo.Record) {
			copied := &kgo.Record{
				Topic:     sink,
				Partition: int32(random.Int63n(partitions)),
				Key:       fmt.Appendf(nil, "%d:%d", one.Partition, one.Offset),
				Value:     one.Value,
			}
			session.Produce(ctx, copied, produced.Promise())
		})
		try := kgo.TransactionEndTry(produced.Err() == nil && random.Float64() >= aborts)
		committed, err := session.End(ctx, try)
		if err != nil {
			end(err)
		}
		outcome := "aborted"
		if committed {
			outcome = "committed"
		}
		fmt.Println(outcome, fetches.NumRecords())
	}
}

func number(word string) int64 {
	found, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		end(err)
	}
	return found
}

func end(err error) {
	fmt.Println("ended", err)
	os.Exit(fenced)
}
