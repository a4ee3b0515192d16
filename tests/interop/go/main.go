// Answers one JSON request a line from standard input with one JSON line, through franz-go.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A request has the union of all arguments; which are set depends on Op.
type request struct {
	Op           string
	Topic        string
	Codec        string
	Acks         int
	Idempotent   bool
	Records      []record
	Start, End   map[int32]int64
	Times        map[int32]int64
	Before       map[int32]int64
	Partitions   json.RawMessage // a count, or a list of partitions
	Partition    int32
	Total        int
	Configs      map[string]*string
	ValidateOnly bool `json:"validate_only"`
	Name         string
	TimeoutMs    int64 `json:"timeout_ms"`
	Outcome      string
	Last         *string
	Committed    bool
	Group        string
	ByPattern    bool `json:"by_pattern"`
	Target       string
	Broker       string
}

// A record as it goes over the pipe; keys, values and header values are base64 or null.
type record struct {
	Partition *int32       `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp *int64       `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

type client struct {
	seeds         string
	admin         *kadm.Client
	transactional map[string]*transactional
}

func main() {
	if len(os.Args) > 2 && os.Args[2] == "members" {
		serveMembers(os.Args[1])
		return
	}
	if os.Args[1] == "rounds" {
		serveRounds()
		return
	}
	connection, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), security(), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()
	it := &client{os.Args[1], kadm.NewClient(connection), map[string]*transactional{}}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		result, err := any(nil), json.Unmarshal(line, &asked)
		if err == nil {
			result, err = it.handle(asked)
		}
		if err != nil {
			err = out.Encode(map[string]any{"error": codeOf(err), "message": err.Error()})
		} else {
			err = out.Encode(map[string]any{"result": result})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (it *client) handle(r request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch r.Op {
	case "produce":
		return it.produce(ctx, r)
	case "fetch":
		return it.fetch(ctx, r)
	case "consume":
		return it.consume(ctx, r)
	case "read_until", "open_transactional", "transact", "finish", "close_transactional", "copy_in_transaction":
		return it.transact(ctx, r)
	default:
		return it.administer(ctx, r)
	}
}

func pack(value []byte) *string {
	if value == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(value)
	return &text
}

func unpack(text *string) []byte {
	if text == nil {
		return nil
	}
	value, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if value == nil {
		value = []byte{}
	}
	return value
}
