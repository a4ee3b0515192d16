package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Group members with franz-go: commands and events are those of ../python/host.py.

type command struct {
	Op, Member, Group, Topic, Assignor string
	SessionMs                          int64 `json:"session_ms"`
	RebalanceMs                        int64 `json:"rebalance_ms"`
	Instance                           *string
}

type event = map[string]any

type member struct {
	wanted     command
	generation int32
	owned      map[int32]bool
	unsaved    []*kgo.Record // records of which no commit was acknowledged yet
	moving     sync.Mutex    // held while it is stalled
	leave      context.CancelFunc
	ended      chan struct{}
}

var output sync.Mutex

func (m *member) emit(name string, about event) {
	output.Lock()
	defer output.Unlock()
	about["member"], about["event"] = m.wanted.Member, name
	line, _ := json.Marshal(about)
	os.Stdout.Write(append(line, '\n'))
}

func serveMembers(seeds string) {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		m := members[asked.Member]
		switch asked.Op {
		case "join":
			ctx, cancel := context.WithCancel(context.Background())
			m = &member{wanted: asked, generation: -1, owned: map[int32]bool{}, leave: cancel, ended: make(chan struct{})}
			members[asked.Member] = m
			go m.live(ctx, seeds)
		case "leave":
			m.leave()
		case "stall":
			m.moving.Lock()
		case "resume":
			m.moving.Unlock()
		}
	}
	for _, m := range members {
		m.leave()
	}
	for _, m := range members {
		<-m.ended
	}
}

func (m *member) live(ctx context.Context, seeds string) {
	defer close(m.ended)
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(seeds), security(), kgo.ConsumerGroup(m.wanted.Group), kgo.ConsumeTopics(m.wanted.Topic),
		kgo.Balancers(balancers[m.wanted.Assignor]), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(m.wanted.SessionMs) * time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(m.wanted.RebalanceMs) * time.Millisecond),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.gone("revoked")), kgo.OnPartitionsLost(m.gone("lost")),
	}
	if m.wanted.Instance != nil {
		options = append(options, kgo.InstanceID(*m.wanted.Instance))
	}
	consumer, err := kgo.NewClient(options...)
	if err == nil {
		for ctx.Err() == nil && err == nil {
			m.moving.Lock()
			fetches := consumer.PollFetches(ctx)
			for _, failed := range fetches.Errors() {
				if errors.Is(failed.Err, kerr.FencedInstanceID) {
					err = failed.Err
				}
			}
			if err == nil {
				err = m.take(consumer, fetches)
			}
			m.moving.Unlock()
			consumer.AllowRebalance()
		}
		consumer.CloseAllowingRebalance()
	}
	if err != nil {
		m.emit("failed", event{"code": codeOf(err), "message": err.Error()})
	} else {
		m.emit("left", event{})
	}
}

func (m *member) take(consumer *kgo.Client, fetches kgo.Fetches) error {
	if records := fetches.Records(); len(records) > 0 {
		m.emit("records", event{"generation": m.generation, "runs": runs(records)})
		m.unsaved = append(m.unsaved, records...)
	}
	if len(m.unsaved) == 0 {
		return nil
	}
	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := consumer.CommitRecords(patience, m.unsaved...); err != nil {
		m.emit("commit_failed", event{"generation": m.generation, "runs": runs(m.unsaved), "code": codeOf(err)})
		if errors.Is(err, kerr.FencedInstanceID) {
			return err
		}
		return nil
	}
	m.emit("committed", event{"generation": m.generation, "runs": runs(m.unsaved)})
	m.unsaved = nil
	return nil
}

// The records as [partition, first offset, last offset].
func runs(records []*kgo.Record) [][3]int64 {
	runs := [][3]int64{}
	for _, one := range records {
		last := len(runs) - 1
		if last >= 0 && runs[last][0] == int64(one.Partition) && runs[last][2] == one.Offset-1 {
			runs[last][2] = one.Offset
		} else {
			runs = append(runs, [3]int64{int64(one.Partition), one.Offset, one.Offset})
		}
	}
	return runs
}

func (m *member) assigned(_ context.Context, consumer *kgo.Client, added map[string][]int32) {
	for _, partition := range added[m.wanted.Topic] {
		m.owned[partition] = true
	}
	owned := []int{}
	for partition := range m.owned {
		owned = append(owned, int(partition))
	}
	sort.Ints(owned)
	id, generation := consumer.GroupMetadata()
	m.generation = generation
	m.emit("assigned", event{"generation": generation, "id": id, "owned": owned})
}

func (m *member) gone(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		partitions := append([]int32{}, gone[m.wanted.Topic]...)
		for _, partition := range partitions {
			delete(m.owned, partition)
		}
		m.unsaved = slices.DeleteFunc(m.unsaved, func(one *kgo.Record) bool { return !m.owned[one.Partition] })
		m.emit(name, event{"partitions": partitions, "generation": m.generation})
	}
}

func codeOf(err error) int16 {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return -1
}
