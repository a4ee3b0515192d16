package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Rounds with one client after another, each with settings of its own: see tests/harness/clients/rounds.py.

type round struct {
	Bootstrap, Ca, Keystore, Mechanism, User, Password, Token, Topic string
	Values                                                           []string
}

func serveRounds() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked round
		var got []string
		if err = json.Unmarshal(line, &asked); err == nil {
			got, err = asked.run()
		}
		if err != nil {
			out.Encode(map[string]any{"error": codeOf(err), "message": err.Error()})
		} else {
			out.Encode(map[string]any{"result": got})
		}
	}
}

func (r *round) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(r.Bootstrap), kgo.MetadataMinAge(10 * time.Millisecond), kgo.AllowAutoTopicCreation()}
	if r.Ca != "" {
		pem, err := os.ReadFile(r.Ca)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		if r.Keystore != "" {
			pair, err := tls.LoadX509KeyPair(r.Keystore, r.Keystore)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if r.Mechanism != "" {
		login := scram.Auth{User: r.User, Pass: r.Password}
		mechanisms := map[string]sasl.Mechanism{
			"PLAIN":         plain.Auth{User: r.User, Pass: r.Password}.AsMechanism(),
			"SCRAM-SHA-256": login.AsSha256Mechanism(),
			"SCRAM-SHA-512": login.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: r.Token}.AsMechanism(),
		}
		options = append(options, kgo.SASL(mechanisms[r.Mechanism]))
	}
	return options, nil
}

func (r *round) run() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	options, err := r.options()
	if err != nil {
		return nil, err
	}
	if err := r.write(ctx, options); err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	return r.read(ctx, options)
}

func (r *round) write(ctx context.Context, options []kgo.Opt) error {
	producer, err := kgo.NewClient(append(options, kgo.TransactionalID(r.Topic), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, values := range [][]string{{"aborted"}, r.Values} {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		for _, value := range values {
			if err := producer.ProduceSync(ctx, &kgo.Record{Topic: r.Topic, Value: []byte(value)}).FirstErr(); err != nil {
				return err
			}
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(values[0] != "aborted")); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) read(ctx context.Context, options []kgo.Opt) ([]string, error) {
	consumer, err := kgo.NewClient(append(options, kgo.ConsumerGroup(r.Topic), kgo.ConsumeTopics(r.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableAutoCommit())...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	got := []string{}
	for len(got) < len(r.Values) {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records, then %w", len(got), err)
		}
		fetches.EachRecord(func(one *kgo.Record) { got = append(got, string(one.Value)) })
	}
	return got, consumer.CommitUncommittedOffsets(ctx)
}
