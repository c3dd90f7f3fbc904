package main

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	register(map[string]func(*Kit){
		"topics_are_made_described_grown_and_deleted": topics,
		"impossible_topics_are_refused":               impossibleTopics,
		"topic_settings_are_altered":                  topicSettings,
		"broker_settings_are_described":               brokerSettings,
		"offsets_are_listed_by_kind":                  listedOffsets,
		"records_are_deleted":                         deletedRecords,
		"an_epoch_has_an_end":                         epochEnds,
		"log_dirs_are_described":                      logDirs,
		"the_cluster_describes_itself":                cluster,
	})
}

func topics(kit *Kit) {
	kit.create(2)
	found, err := kit.admin.ListTopics(kit.ctx, kit.topic)
	must(err)
	equal(2, len(found[kit.topic].Partitions), "partitions")
	check(found[kit.topic].ID != kadm.TopicID{}, "no topic id")
	grown, err := kit.admin.CreatePartitions(kit.ctx, 3, kit.topic)
	must(err)
	must(grown.Error())
	until("five partitions", func() bool {
		found, err := kit.admin.ListTopics(kit.ctx, kit.topic)
		must(err)
		return len(found[kit.topic].Partitions) == 5
	})
	fewer, err := kit.admin.UpdatePartitions(kit.ctx, 1, kit.topic)
	must(err)
	refused(kerr.InvalidPartitions, fewer.Error())
	_, err = kit.admin.DeleteTopic(kit.ctx, kit.topic)
	must(err)
	_, err = kit.admin.DeleteTopic(kit.ctx, kit.topic)
	refused(kerr.UnknownTopicOrPartition, err)
}

func impossibleTopics(kit *Kit) {
	soon := "soon"
	kit.create(1)
	_, err := kit.admin.CreateTopic(kit.ctx, 1, 1, nil, kit.topic)
	refused(kerr.TopicAlreadyExists, err)
	_, err = kit.admin.CreateTopic(kit.ctx, 0, 1, nil, kit.topic+".no")
	refused(kerr.InvalidPartitions, err)
	_, err = kit.admin.CreateTopic(kit.ctx, 1, 5, nil, kit.topic+".no")
	refused(kerr.InvalidReplicationFactor, err)
	_, err = kit.admin.CreateTopic(kit.ctx, 1, 1, nil, "a b")
	refused(kerr.InvalidTopicException, err)
	_, err = kit.admin.CreateTopic(kit.ctx, 1, 1, map[string]*string{"retention.ms": &soon}, kit.topic+".no")
	refused(kerr.InvalidConfig, err)
	trial, err := kit.admin.ValidateCreateTopics(kit.ctx, 1, 1, nil, kit.topic+".trial")
	must(err)
	must(trial.Error())
	found, err := kit.admin.ListTopics(kit.ctx)
	must(err)
	check(!found.Has(kit.topic+".trial"), "a trial has made a topic")
}

func (kit *Kit) setting(name string) string {
	described, err := kit.admin.DescribeTopicConfigs(kit.ctx, kit.topic)
	must(err)
	configs := described[0].Configs
	index := slices.IndexFunc(configs, func(config kadm.Config) bool { return config.Key == name })
	if index < 0 { // a node that does not know of the topic yet
		return ""
	}
	return configs[index].MaybeValue()
}

func topicSettings(kit *Kit) {
	kit.create(1)
	value, compact, soon := "1234567", "compact", "soon"
	changed, err := kit.admin.AlterTopicConfigs(kit.ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: &value},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact},
	}, kit.topic)
	must(err)
	must(changed[0].Err)
	// Each question may go to another node, which may be behind by a moment.
	until("the new value", func() bool { return kit.setting("retention.ms") == value })
	until("what was appended", func() bool { return kit.setting("cleanup.policy") == "delete,compact" })
	wrong := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &soon}}
	changed, err = kit.admin.AlterTopicConfigs(kit.ctx, wrong, kit.topic)
	must(err)
	refused(kerr.InvalidConfig, changed[0].Err)
	// AlterConfigs sets all anew: what it does not name has its default again.
	state := []kadm.AlterConfig{{Name: "retention.bytes", Value: &value}}
	changed, err = kit.admin.AlterTopicConfigsState(kit.ctx, state, kit.topic)
	must(err)
	must(changed[0].Err)
	until("the default", func() bool { return kit.setting("cleanup.policy") == "delete" })
	until("the other setting", func() bool { return kit.setting("retention.bytes") == value })
}

func brokerSettings(kit *Kit) {
	brokers, err := kit.admin.ListBrokers(kit.ctx)
	must(err)
	described, err := kit.admin.DescribeBrokerConfigs(kit.ctx, brokers[0].NodeID)
	must(err)
	must(described[0].Err)
	names := []string{}
	for _, config := range described[0].Configs {
		names = append(names, config.Key)
	}
	check(slices.Contains(names, "node.id"), "no node.id in %v", names)
}

func listedOffsets(kit *Kit) {
	kit.create(1)
	for _, at := range []int64{1000, 3000, 2000} {
		record := &kgo.Record{Timestamp: time.UnixMilli(at)}
		must(kit.producer().ProduceSync(kit.ctx, record).FirstErr())
	}
	told := func(ask func(context.Context, ...string) (kadm.ListedOffsets, error)) int64 {
		listed := answered(func() (kadm.ListedOffsets, error) { return ask(kit.ctx, kit.topic) })
		offset, _ := listed.Lookup(kit.topic, 0)
		must(offset.Err)
		return offset.Offset
	}
	after := func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return kit.admin.ListOffsetsAfterMilli(ctx, 1500, topics...)
	}
	equal(int64(0), told(kit.admin.ListStartOffsets), "start")
	equal(int64(3), told(kit.admin.ListEndOffsets), "end")
	equal(int64(3), told(kit.admin.ListCommittedOffsets), "last stable")
	equal(int64(1), told(kit.admin.ListMaxTimestampOffsets), "of the latest time")
	equal(int64(1), told(after), "after a time")
	equal(int64(0), told(kit.admin.ListLocalLogStartOffsets), "local start")
}

func deletedRecords(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 20, 1)
	before := func(offset int64) kadm.DeleteRecordsResponses {
		offsets := kadm.Offsets{}
		offsets.AddOffset(kit.topic, 0, offset, -1)
		return answered(func() (kadm.DeleteRecordsResponses, error) { return kit.admin.DeleteRecords(kit.ctx, offsets) })
	}
	deleted := before(8)
	answer, _ := deleted.Lookup(kit.topic, 0)
	must(answer.Err)
	equal(int64(8), answer.LowWatermark, "low watermark")
	equal(span(8, 20), numbers(kit.readAll(1, 12)), "what is left")
	refused(kerr.OffsetOutOfRange, before(99).Error())
}

func epochEnds(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 20, 1)
	asked := kadm.OffsetForLeaderEpochRequest{}
	asked.Add(kit.topic, 0, 0)
	ends, err := kit.admin.OffsetForLeaderEpoch(kit.ctx, asked)
	must(err)
	end := ends[kit.topic][0]
	must(end.Err)
	equal(int64(20), end.EndOffset, "end of the first epoch")
}

func logDirs(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 20, 1)
	dirs, err := kit.admin.DescribeAllLogDirs(kit.ctx, kadm.TopicsSet{kit.topic: {0: {}}})
	must(err)
	for _, dir := range dirs {
		must(dir.Error())
		part, there := dir.LookupPartition(kit.topic, 0)
		check(there, "the partition is not there")
		check(part.Size > 20, "size %d", part.Size)
	}
}

func cluster(kit *Kit) {
	metadata, err := kit.admin.BrokerMetadata(kit.ctx)
	must(err)
	equal(nodes(), len(metadata.Brokers), "brokers")
	equal(22, len(metadata.Cluster), "length of the cluster's id")
	controllers := 0
	for _, broker := range metadata.Brokers {
		if broker.NodeID == metadata.Controller {
			controllers++
		}
	}
	equal(1, controllers, "brokers that are the controller")
	versions, err := kit.admin.ApiVersions(kit.ctx)
	must(err)
	for _, broker := range versions {
		must(broker.Err)
		_, _, there := broker.KeyVersions(0)
		check(there, "no produce")
	}
	found := kit.admin.FindGroupCoordinators(kit.ctx, kit.group)
	must(found.Error())
}
