package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	register(map[string]func(*Kit){
		"every_level_of_acks_writes_every_record_in_order":      everyLevelOfAcks,
		"every_codec_passes_through":                            everyCodec,
		"an_idempotent_producer_leaves_no_holes":                idempotence,
		"headers_keys_and_nulls_come_back":                      shapes,
		"a_large_record_fits_where_the_topic_allows_it":         largeRecord,
		"a_record_over_the_limit_is_refused_and_the_next_taken": tooLarge,
		"a_first_write_creates_the_topic_where_it_is_asked_to":  autoCreation,
		"a_reader_seeks_where_it_wants":                         seeks,
		"a_reader_starts_at_a_time_or_relative_to_an_end":       startingPoints,
		"an_offset_out_of_range_is_reset_or_told":               outOfRange,
		"a_paused_partition_is_silent_until_it_is_resumed":      pauses,
		"a_waiting_fetch_is_woken":                              longPoll,
		"a_small_limit_still_brings_a_large_record":             smallLimit,
		"isolation_levels_agree_without_transactions":           isolation,
		"a_topic_made_again_is_not_taken_for_the_old_one":       madeAgain,
		"a_pattern_finds_topics_made_later":                     pattern,
	})
}

func everyLevelOfAcks(kit *Kit) {
	kit.create(1)
	for index, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		options := []kgo.Opt{kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()}
		sent := kit.send(kit.producer(options...), index*200, 200, 1)
		if index > 0 {
			equal(int64(index*200+199), sent[199].Offset, "offset told")
		}
		equal(span(0, index*200+200), numbers(kit.readAll(1, index*200+200)), "values")
	}
}

func everyCodec(kit *Kit) {
	kit.create(1)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		producer := kit.producer(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
		var records []*kgo.Record
		for number := range 100 {
			value := bytes.Repeat(fmt.Appendf(nil, "%s %d ", name, number), 50)
			records = append(records, &kgo.Record{Key: []byte(name), Value: value})
		}
		must(producer.ProduceSync(kit.ctx, records...).FirstErr())
	}
	next := map[string]int{}
	for _, record := range kit.readAll(1, 500) {
		name := string(record.Key)
		wanted := bytes.Repeat(fmt.Appendf(nil, "%s %d ", name, next[name]), 50)
		check(bytes.Equal(wanted, record.Value), "%s: record %d differs", name, next[name])
		next[name]++
	}
}

// franz-go has up to five batches of a partition under way, and numbers them by itself.
func idempotence(kit *Kit) {
	kit.create(3)
	producer := kit.producer(kgo.ProducerBatchMaxBytes(512), kgo.ProducerLinger(0))
	sent := kit.send(producer, 0, 6000, 3)
	for number, record := range sent {
		equal(int64(number/3), record.Offset, "offset told")
	}
	read := map[int32][]*kgo.Record{}
	for _, record := range kit.readAll(3, 6000) {
		read[record.Partition] = append(read[record.Partition], record)
	}
	for partition, records := range read {
		for index, number := range numbers(records) {
			equal(index*3+int(partition), number, "value")
		}
	}
	described := answered(func() (kadm.DescribedProducersTopics, error) {
		return kit.admin.DescribeProducers(kit.ctx, kadm.TopicsSet{kit.topic: {0: {}}})
	})
	producers := described.SortedProducers()
	equal(1, len(producers), "producers of a partition")
	equal(int32(1999), producers[0].LastSequence, "its last sequence")
}

func shapes(kit *Kit) {
	kit.create(1)
	at := time.UnixMilli(1_700_000_000_123)
	headers := []kgo.RecordHeader{{Key: "trace", Value: []byte{0, 1}}, {Key: "none"}, {Key: "trace", Value: []byte("2")}}
	sent := []*kgo.Record{
		{Key: []byte("key"), Value: []byte("value"), Headers: headers, Timestamp: at},
		{},
		{Key: []byte{}, Value: []byte{}},
	}
	must(kit.producer().ProduceSync(kit.ctx, sent...).FirstErr())
	read := kit.readAll(1, 3)
	equal(headers, read[0].Headers, "headers")
	check(read[0].Timestamp.Equal(at), "timestamp %v", read[0].Timestamp)
	equal(int32(0), read[0].LeaderEpoch, "leader epoch")
	check(read[1].Key == nil && read[1].Value == nil, "nulls came as %v", read[1])
	check(read[2].Key != nil && read[2].Value != nil, "empty came as null")
}

func largeRecord(kit *Kit) {
	kit.create(1, "max.message.bytes", "9000000")
	large := make([]byte, 8_000_000)
	rand.New(rand.NewSource(1)).Read(large)
	producer := kit.producer(kgo.ProducerBatchMaxBytes(9_000_000))
	must(producer.ProduceSync(kit.ctx, &kgo.Record{Value: large}, &kgo.Record{Value: []byte("1")}).FirstErr())
	read := kit.readAll(1, 2)
	check(bytes.Equal(large, read[0].Value), "the large value differs")
	equal([]int{1}, numbers(read[1:]), "what follows it")
}

func tooLarge(kit *Kit) {
	kit.create(1, "max.message.bytes", "10000")
	producer := kit.producer(kgo.ProducerBatchCompression(kgo.NoCompression()))
	refused(kerr.MessageTooLarge, producer.ProduceSync(kit.ctx, &kgo.Record{Value: make([]byte, 20_000)}).FirstErr())
	kit.send(producer, 1, 1, 1)
	equal([]int{1}, numbers(kit.readAll(1, 1)), "what is there")
}

func autoCreation(kit *Kit) {
	kit.send(kit.producer(kgo.AllowAutoTopicCreation()), 1, 1, 1)
	equal([]int{1}, numbers(kit.readAll(1, 1)), "what is there")
	kit.topic += ".absent"
	producer := kit.producer(kgo.UnknownTopicRetries(1))
	refused(kerr.UnknownTopicOrPartition, producer.ProduceSync(kit.ctx, &kgo.Record{}).FirstErr())
}

func seeks(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 100, 1)
	reader := kit.reader(1, kgo.NewOffset().AtStart())
	kit.receive(reader, 100)
	for _, offset := range []int64{57, 3} {
		reader.SetOffsets(map[string]map[int32]kgo.EpochOffset{kit.topic: {0: {Epoch: 0, Offset: offset}}})
		equal(span(int(offset), 100), numbers(kit.receive(reader, 100-int(offset))), "values")
	}
}

func startingPoints(kit *Kit) {
	kit.create(1)
	start := int64(1_700_000_000_000)
	var records []*kgo.Record
	for number := range 50 {
		at := time.UnixMilli(start + int64(number)*1000)
		records = append(records, &kgo.Record{Value: fmt.Append(nil, number), Timestamp: at})
	}
	must(kit.producer().ProduceSync(kit.ctx, records...).FirstErr())
	points := map[int]kgo.Offset{
		30: kgo.NewOffset().AfterMilli(start + 29_500),
		10: kgo.NewOffset().AtStart().Relative(10),
		45: kgo.NewOffset().AtEnd().Relative(-5),
		7:  kgo.NewOffset().At(7),
	}
	for first, point := range points {
		equal(span(first, 50), numbers(kit.receive(kit.reader(1, point), 50-first)), "values")
	}
}

func outOfRange(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 10, 1)
	lenient := kit.reader(1, kgo.NewOffset().At(1000), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	equal(span(0, 10), numbers(kit.receive(lenient, 10)), "after the reset")
	strict := kit.reader(1, kgo.NewOffset().At(1000), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	refused(kerr.OffsetOutOfRange, strict.PollFetches(kit.ctx).Err())
}

func pauses(kit *Kit) {
	kit.create(2)
	reader := kit.reader(2, kgo.NewOffset().AtStart())
	reader.PauseFetchPartitions(map[string][]int32{kit.topic: {1}})
	kit.send(kit.producer(), 0, 40, 2)
	for _, record := range kit.receive(reader, 20) {
		equal(int32(0), record.Partition, "partition")
	}
	reader.ResumeFetchPartitions(map[string][]int32{kit.topic: {1}})
	for _, record := range kit.receive(reader, 20) {
		equal(int32(1), record.Partition, "partition")
	}
}

func longPoll(kit *Kit) {
	kit.create(1) // of several, one may join the reader's session only after the first wait
	reader := kit.reader(1, kgo.NewOffset().AtStart(), kgo.FetchMaxWait(20*time.Second))
	producer := kit.producer(kgo.ProducerLinger(0))
	for number := range 30 {
		kit.send(producer, number, 1, 1)
		started := time.Now()
		equal([]int{number}, numbers(kit.receive(reader, 1)), "the new record")
		check(time.Since(started) < 10*time.Second, "took %s", time.Since(started))
	}
}

func smallLimit(kit *Kit) {
	kit.create(2)
	for number := range int32(10) {
		record := &kgo.Record{Value: make([]byte, 100_000), Partition: number % 2}
		must(kit.producer().ProduceSync(kit.ctx, record).FirstErr())
	}
	limits := []kgo.Opt{kgo.FetchMaxBytes(1000), kgo.FetchMaxPartitionBytes(500)}
	kit.receive(kit.reader(2, kgo.NewOffset().AtStart(), limits...), 10)
}

func isolation(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 30, 1)
	for _, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
		reader := kit.reader(1, kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(level))
		equal(span(0, 30), numbers(kit.receive(reader, 30)), "values")
	}
}

// Topic ids: a reader of the old topic must be told, not fed from the new one (KIP-516).
func madeAgain(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 10, 1)
	reader := kit.reader(1, kgo.NewOffset().AtStart(), kgo.MetadataMaxAge(300*time.Millisecond))
	kit.receive(reader, 10)
	_, err := kit.admin.DeleteTopic(kit.ctx, kit.topic)
	must(err)
	until("the name is free", func() bool {
		_, err := kit.admin.CreateTopic(kit.ctx, 1, int16(min(nodes(), 3)), nil, kit.topic)
		check(err == nil || errors.Is(err, kerr.TopicAlreadyExists), "creating: %v", err)
		return err == nil
	})
	kit.send(kit.producer(), 100, 20, 1)
	equal(span(100, 120), numbers(kit.readAll(1, 20)), "the new topic's records")
}

func pattern(kit *Kit) {
	kit.create(1)
	kit.send(kit.producer(), 0, 5, 1)
	patterns := []kgo.Opt{kgo.ConsumeRegex(), kgo.ConsumeTopics("^" + kit.topic + ".*"), kgo.MetadataMaxAge(300 * time.Millisecond)}
	reader := kit.client(append(patterns, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	kit.receive(reader, 5)
	kit.topic += ".later"
	kit.create(1)
	kit.send(kit.producer(), 0, 5, 1)
	equal(kit.topic, kit.receive(reader, 5)[0].Topic, "the topic made later")
}
