package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func (it *client) administer(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case "cluster":
		return it.cluster(ctx)
	case "topic_names":
		topics, err := it.admin.ListTopics(ctx)
		return topics.Names(), err
	case "partitions_of":
		return it.partitionsOf(ctx, r.Topic)
	case "create_topic":
		var count int32
		if err := json.Unmarshal(r.Partitions, &count); err != nil {
			return nil, err
		}
		create := it.admin.CreateTopics
		if r.ValidateOnly {
			create = it.admin.ValidateCreateTopics
		}
		told, err := create(ctx, count, 1, r.Configs, r.Topic)
		return nil, either(err, told[r.Topic].Err)
	case "add_partitions":
		told, err := it.admin.UpdatePartitions(ctx, r.Total, r.Topic)
		return nil, either(err, told[r.Topic].Err)
	case "delete_topic":
		told, err := it.admin.DeleteTopics(ctx, r.Topic)
		return nil, either(err, told[r.Topic].Err)
	case "topic_configs":
		return values(it.admin.DescribeTopicConfigs(ctx, r.Topic))
	case "broker_configs":
		broker, err := strconv.ParseInt(r.Broker, 10, 32)
		if err != nil {
			return nil, err
		}
		return values(it.admin.DescribeBrokerConfigs(ctx, int32(broker)))
	case "set_topic_configs":
		changes := []kadm.AlterConfig{}
		for name, value := range r.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
		}
		return nil, it.alter(ctx, r.Topic, changes)
	case "reset_topic_config":
		return nil, it.alter(ctx, r.Topic, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: r.Name}})
	case "delete_records":
		return it.deleteRecords(ctx, r)
	case "offsets_for_times":
		return it.offsetsForTimes(ctx, r)
	case "watermarks":
		return it.watermarks(ctx, r)
	case "offsets_of_max_timestamp":
		listed, err := it.admin.ListMaxTimestampOffsets(ctx, r.Topic)
		return offsets(listed[r.Topic]), either(err, listed.Error())
	case "log_dirs":
		return it.logDirs(ctx, r.Topic)
	case "producers":
		return it.producers(ctx, r.Topic, r.Partition)
	case "elect_leaders":
		return it.electLeaders(ctx, r)
	}
	return nil, fmt.Errorf("unknown request %q", r.Op)
}

func either(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func (it *client) cluster(ctx context.Context) (any, error) {
	told, err := it.admin.BrokerMetadata(ctx)
	nodes := [][]any{}
	for _, each := range told.Brokers {
		nodes = append(nodes, []any{each.NodeID, each.Host, each.Port})
	}
	return map[string]any{"cluster_id": told.Cluster, "controller": told.Controller, "nodes": nodes}, err
}

func (it *client) partitionsOf(ctx context.Context, topic string) (any, error) {
	told, err := it.admin.Metadata(ctx, topic)
	if err := either(err, told.Topics[topic].Err); err != nil {
		return nil, err
	}
	partitions := map[int32][]any{}
	for _, each := range told.Topics[topic].Partitions {
		partitions[each.Partition] = []any{each.Leader, each.Replicas, each.ISR}
	}
	return partitions, nil
}

func values(told kadm.ResourceConfigs, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if told[0].Err != nil {
		return nil, told[0].Err
	}
	configs := map[string]*string{}
	for _, each := range told[0].Configs {
		configs[each.Key] = each.Value
	}
	return configs, nil
}

func (it *client) alter(ctx context.Context, topic string, changes []kadm.AlterConfig) error {
	told, err := it.admin.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	return told[0].Err
}

func (it *client) deleteRecords(ctx context.Context, r request) (any, error) {
	before := kadm.Offsets{}
	for partition, offset := range r.Before {
		before.Add(kadm.Offset{Topic: r.Topic, Partition: partition, At: offset})
	}
	told, err := it.admin.DeleteRecords(ctx, before)
	low := map[int32]int64{}
	for partition, each := range told[r.Topic] {
		low[partition] = each.LowWatermark
		err = either(err, each.Err)
	}
	return low, err
}

func (it *client) offsetsForTimes(ctx context.Context, r request) (any, error) {
	found := map[int32]*int64{}
	for partition, millisecond := range r.Times {
		listed, err := it.admin.ListOffsetsAfterMilli(ctx, millisecond, r.Topic)
		if err := either(err, listed.Error()); err != nil {
			return nil, err
		}
		// Where no record is that young, the library gives the end of the partition and no timestamp.
		if each := listed[r.Topic][partition]; each.Timestamp >= 0 {
			found[partition] = &each.Offset
		} else {
			found[partition] = nil
		}
	}
	return found, nil
}

func (it *client) watermarks(ctx context.Context, r request) (any, error) {
	first, err := it.admin.ListStartOffsets(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	last, err := it.admin.ListEndOffsets(ctx, r.Topic)
	if err := either(err, either(first.Error(), last.Error())); err != nil {
		return nil, err
	}
	marks := map[int32][2]int64{}
	for partition, low := range offsets(first[r.Topic]) {
		marks[partition] = [2]int64{low, last[r.Topic][partition].Offset}
	}
	return marks, nil
}

func offsets(listed map[int32]kadm.ListedOffset) map[int32]int64 {
	found := map[int32]int64{}
	for partition, each := range listed {
		found[partition] = each.Offset
	}
	return found
}

func (it *client) logDirs(ctx context.Context, topic string) (any, error) {
	told, err := it.admin.DescribeAllLogDirs(ctx, nil)
	sizes := map[int32]int64{}
	for _, broker := range told {
		for _, directory := range broker {
			err = either(err, directory.Err)
			for partition, each := range directory.Topics[topic] {
				sizes[partition] = each.Size
			}
		}
	}
	return sizes, err
}

func (it *client) producers(ctx context.Context, topic string, partition int32) (any, error) {
	asked := kadm.TopicsSet{}
	asked.Add(topic, partition)
	told, err := it.admin.DescribeProducers(ctx, asked)
	if err != nil {
		return nil, err
	}
	each := told[topic].Partitions[partition]
	states := []map[string]int64{}
	for _, one := range each.ActiveProducers {
		states = append(states, map[string]int64{
			"producer_id": one.ProducerID, "epoch": int64(one.ProducerEpoch),
			"last_sequence": int64(one.LastSequence), "last_timestamp": one.LastTimestamp,
		})
	}
	return states, each.Err
}

func (it *client) electLeaders(ctx context.Context, r request) (any, error) {
	var partitions []int32
	if err := json.Unmarshal(r.Partitions, &partitions); err != nil {
		return nil, err
	}
	asked := kadm.TopicsSet{}
	asked.Add(r.Topic, partitions...)
	told, err := it.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, asked)
	codes := map[int32]int16{}
	for partition, each := range told[r.Topic] {
		if known, ok := each.Err.(*kerr.Error); ok {
			codes[partition] = known.Code
		} else {
			codes[partition] = 0
		}
	}
	return codes, err
}
