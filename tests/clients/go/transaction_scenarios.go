package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	register(map[string]func(*Kit){
		"transactions_are_read_whole_or_not_at_all":           transactions,
		"a_reader_waits_at_an_open_transaction":               openTransaction,
		"a_second_producer_with_the_same_id_fences_the_first": fencing,
		"a_new_producer_ends_what_its_last_one_left_open":     recovery,
		"a_session_copies_every_record_once":                  func(kit *Kit) { session(kit) },
		"a_session_copies_every_record_once_kip848":           func(kit *Kit) { session(kit, serverSide...) },
		"transactions_are_listed_and_described":               describedTransactions,
		"an_operator_aborts_what_a_partition_has_open":        writtenMarkers,
	})
}

func (kit *Kit) transactional(name string, options ...kgo.Opt) *kgo.Client {
	return kit.producer(append(options, kgo.TransactionalID(kit.group+"."+name))...)
}

// transact commits one transaction; while leaders die, as many aborted ones before it as that takes.
func (kit *Kit) transact(producer *kgo.Client, first, count int, partitions int32) {
	for left := 7; ; left-- {
		must(producer.BeginTransaction())
		err := kit.trySend(producer, first, count, partitions)
		if err == nil {
			err = producer.EndTransaction(kit.ctx, kgo.TryCommit)
		}
		if err == nil {
			return
		}
		check(inChaos && left > 0, "not committed: %v", err)
		must(producer.AbortBufferedRecords(kit.ctx))
		must(producer.EndTransaction(kit.ctx, kgo.TryAbort))
	}
}

func (kit *Kit) trySend(producer *kgo.Client, first, count int, partitions int32) error {
	var records []*kgo.Record
	for number := first; number < first+count; number++ {
		value := []byte(strconv.Itoa(number))
		records = append(records, &kgo.Record{Value: value, Partition: int32(number) % partitions})
	}
	return producer.ProduceSync(kit.ctx, records...).FirstErr()
}

func (kit *Kit) abort(producer *kgo.Client) {
	must(producer.EndTransaction(kit.ctx, kgo.TryAbort))
}

// settled waits until no transaction is open in the topic.
func (kit *Kit) settled(topic string) {
	until("no transaction is open", func() bool {
		stable, err := kit.admin.ListCommittedOffsets(kit.ctx, topic)
		if inChaos && err != nil {
			return false
		}
		must(err)
		ends, err := kit.admin.ListEndOffsets(kit.ctx, topic)
		if inChaos && err != nil {
			return false
		}
		must(err)
		same := true
		ends.Each(func(end kadm.ListedOffset) {
			there, _ := stable.Lookup(topic, end.Partition)
			same = same && end.Err == nil && there.Err == nil && end.Offset == there.Offset
		})
		return same
	})
}

func (kit *Kit) readCommitted(partitions int32, count int) []*kgo.Record {
	kit.settled(kit.topic)
	return kit.receive(kit.reader(partitions, kgo.NewOffset().AtStart(), committed), count)
}

var committed = kgo.FetchIsolationLevel(kgo.ReadCommitted())

func of(records []*kgo.Record, partition int32) []*kgo.Record {
	return slices.DeleteFunc(slices.Clone(records), func(record *kgo.Record) bool {
		return record.Partition != partition
	})
}

func transactions(kit *Kit) {
	kit.create(2)
	producer := kit.transactional("writer")
	for round := range 10 {
		must(producer.BeginTransaction())
		if !inChaos {
			kit.send(producer, 1000, 10, 2)
		}
		kit.abort(producer)
		kit.transact(producer, round*10, 10, 2)
	}
	read := kit.readCommitted(2, 100)
	for partition := range int32(2) {
		for index, number := range numbers(of(read, partition)) {
			equal(index*2+int(partition), number, "value")
		}
	}
}

func openTransaction(kit *Kit) {
	kit.create(1)
	slow := kit.transactional("slow")
	must(slow.BeginTransaction())
	kit.send(slow, 0, 1, 1)
	kit.send(kit.producer(), 1, 1, 1)
	reader := kit.reader(1, kgo.NewOffset().AtStart(), committed)
	equal([]int{0, 1}, numbers(kit.readAll(1, 2)), "what is not committed")
	stable, err := kit.admin.ListCommittedOffsets(kit.ctx, kit.topic)
	must(err)
	there, _ := stable.Lookup(kit.topic, 0)
	equal(int64(0), there.Offset, "last stable offset")
	must(slow.EndTransaction(kit.ctx, kgo.TryCommit))
	equal([]int{0, 1}, numbers(kit.receive(reader, 2)), "what is committed")
}

func fencing(kit *Kit) {
	kit.create(1)
	zombie := kit.transactional("writer")
	must(zombie.BeginTransaction())
	kit.send(zombie, 666, 1, 1)
	heir := kit.transactional("writer")
	kit.transact(heir, 1, 1, 1)
	err := zombie.EndTransaction(kit.ctx, kgo.TryCommit)
	fenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	check(fenced, "the zombie has heard %v", err)
	equal([]int{1}, numbers(kit.readCommitted(1, 1)), "what is committed")
}

func recovery(kit *Kit) {
	kit.create(1)
	for round := range 3 {
		producer := kit.transactional("writer")
		kit.transact(producer, round, 1, 1)
		must(producer.BeginTransaction())
		kit.trySend(producer, 1000, 1, 1)
		producer.Close() // franz-go ends nothing at its close
	}
	kit.transact(kit.transactional("writer"), 3, 1, 1)
	equal(span(0, 4), numbers(kit.readCommitted(1, 4)), "what is committed")
}

func session(kit *Kit, options ...kgo.Opt) {
	kit.create(2)
	target := kit.topic
	kit.topic += ".source"
	kit.create(2)
	kit.send(kit.producer(), 0, 300, 2)
	common := []kgo.Opt{
		kgo.SeedBrokers(kit.bootstrap...), kgo.ConsumerGroup(kit.group), kgo.ConsumeTopics(kit.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), committed, kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(target), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(kit.group + ".copier"),
	}
	worker, err := kgo.NewGroupTransactSession(append(common, options...)...)
	must(err)
	kit.closers = append(kit.closers, worker.Close)
	for copied, round := 0, 0; copied < 300; round++ {
		count, done := copyOnce(kit, worker, round%3 == 1)
		if done {
			copied += count
		}
	}
	kit.topic = target
	read := kit.readCommitted(2, 300)
	for partition := range int32(2) {
		for index, number := range numbers(of(read, partition)) {
			equal(index*2+int(partition), number, "value")
		}
	}
}

// copyOnce copies what one poll brings, and says whether that was committed; the session rewinds otherwise.
func copyOnce(kit *Kit, worker *kgo.GroupTransactSession, givesUp bool) (int, bool) {
	ctx, cancel := context.WithTimeout(kit.ctx, wait)
	defer cancel()
	fetches := worker.PollRecords(ctx, 40)
	must(fetches.Err())
	must(worker.Begin())
	promise := kgo.AbortingFirstErrPromise(worker.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		worker.Produce(kit.ctx, &kgo.Record{Value: record.Value, Partition: record.Partition}, promise.Promise())
	})
	failed := promise.Err()
	check(inChaos || failed == nil, "not written: %v", failed)
	done, err := worker.End(kit.ctx, kgo.TransactionEndTry(failed == nil && !givesUp))
	check(inChaos || err == nil, "not ended: %v", err)
	return fetches.NumRecords(), done
}

func describedTransactions(kit *Kit) {
	kit.create(2)
	producer := kit.transactional("writer", kgo.TransactionTimeout(45_000_000_000))
	name := kit.group + ".writer"
	must(producer.BeginTransaction())
	kit.send(producer, 0, 4, 2)
	described, err := kit.admin.DescribeTransactions(kit.ctx, name)
	must(err)
	transaction := described[name]
	must(transaction.Err)
	equal("Ongoing", transaction.State, "state")
	equal(int32(45_000), transaction.TimeoutMillis, "timeout")
	equal(kadm.TopicsSet{kit.topic: {0: {}, 1: {}}}, transaction.Topics, "partitions")
	check(transaction.StartTimestamp > 1_700_000_000_000, "no start: %d", transaction.StartTimestamp)
	listed, err := kit.admin.ListTransactions(kit.ctx, []int64{transaction.ProducerID}, []string{"Ongoing"})
	must(err)
	equal([]string{name}, listed.TransactionalIDs(), "listed by producer id and state")
	must(producer.EndTransaction(kit.ctx, kgo.TryCommit))
	until("it is complete", func() bool {
		described, err := kit.admin.DescribeTransactions(kit.ctx, name)
		must(err)
		return described[name].State == "CompleteCommit" && len(described[name].Topics) == 0
	})
	described, err = kit.admin.DescribeTransactions(kit.ctx, name+".never")
	must(err)
	refused(kerr.TransactionalIDNotFound, described[name+".never"].Err)
}

func writtenMarkers(kit *Kit) {
	kit.create(1)
	producer := kit.transactional("writer")
	must(producer.BeginTransaction())
	kit.send(producer, 666, 3, 1)
	known, err := kit.admin.DescribeProducers(kit.ctx, kadm.TopicsSet{kit.topic: {0: {}}})
	must(err)
	open := known.SortedProducers()[0]
	equal(int64(0), open.CurrentTxnStartOffset, "start of what is open")
	marker := kadm.TxnMarkers{
		ProducerID: open.ProducerID, ProducerEpoch: open.ProducerEpoch, Commit: false,
		CoordinatorEpoch: max(open.CoordinatorEpoch, 0), Topics: kadm.TopicsSet{kit.topic: {0: {}}},
	}
	answers, err := kit.admin.WriteTxnMarkers(kit.ctx, marker)
	must(err)
	for _, answer := range answers.SortedPartitions() {
		must(answer.Err)
	}
	kit.settled(kit.topic)
	kit.send(kit.producer(), 1, 1, 1)
	equal([]int{1}, numbers(kit.receive(kit.reader(1, kgo.NewOffset().AtStart(), committed), 1)), "what is there")
	kit.abort(producer)
}
