package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// inChaos is whether leaders die all the while.
var inChaos = os.Getenv("FENCEPOST_TEST_AGAINST") == "cluster-chaos"
var wait = patience()

// patience is how long a client may take: longer while leaders die.
func patience() time.Duration {
	if inChaos {
		return 75 * time.Second
	}
	return 30 * time.Second
}

// Kit is what a scenario works with: clients that are closed at its end, names of its own, loops that
// end. A check that fails panics, which ends the scenario.
type Kit struct {
	ctx       context.Context
	bootstrap []string
	topic     string
	group     string
	closers   []func()
	admin     *kadm.Client
}

// nodes is how many brokers there are.
func nodes() int {
	count, err := strconv.Atoi(os.Getenv("FENCEPOST_TEST_NODES"))
	if err != nil {
		return 1
	}
	return count
}

func newKit(ctx context.Context, bootstrap, scenario string) *Kit {
	stem := fmt.Sprintf("%s.%d", scenario, os.Getpid())
	kit := &Kit{
		ctx:       ctx,
		bootstrap: strings.Split(bootstrap, ","),
		topic:     "franz." + stem,
		group:     "franz-group." + stem,
	}
	kit.admin = kadm.NewClient(kit.client())
	return kit
}

func (kit *Kit) close() {
	for index := len(kit.closers) - 1; index >= 0; index-- {
		kit.closers[index]()
	}
}

func (kit *Kit) client(options ...kgo.Opt) *kgo.Client {
	common := []kgo.Opt{kgo.SeedBrokers(kit.bootstrap...), kgo.MetadataMinAge(100 * time.Millisecond)}
	client, err := kgo.NewClient(append(common, options...)...)
	must(err)
	kit.closers = append(kit.closers, client.Close)
	return client
}

// producer writes records to the partition they name.
func (kit *Kit) producer(options ...kgo.Opt) *kgo.Client {
	common := []kgo.Opt{kgo.DefaultProduceTopic(kit.topic), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	return kit.client(append(common, options...)...)
}

func (kit *Kit) create(partitions int32, settings ...string) {
	configs := map[string]*string{}
	for index := 0; index < len(settings); index += 2 {
		configs[settings[index]] = &settings[index+1]
	}
	until("the topic is made", func() bool {
		_, err := kit.admin.CreateTopic(kit.ctx, partitions, int16(min(nodes(), 3)), configs, kit.topic)
		if inChaos { // the broker that was asked may have died with the answer; the name is this scenario's own
			return err == nil || errors.Is(err, kerr.TopicAlreadyExists)
		}
		must(err)
		return true
	})
}

// send writes the numbers from first to first+count, in turn to each partition.
func (kit *Kit) send(producer *kgo.Client, first, count int, partitions int32) []*kgo.Record {
	var records []*kgo.Record
	for number := first; number < first+count; number++ {
		value := []byte(strconv.Itoa(number))
		records = append(records, &kgo.Record{Value: value, Partition: int32(number) % partitions})
	}
	must(producer.ProduceSync(kit.ctx, records...).FirstErr())
	return records
}

// reader reads the topic's partitions from an offset on, without a group.
func (kit *Kit) reader(partitions int32, from kgo.Offset, options ...kgo.Opt) *kgo.Client {
	offsets := map[int32]kgo.Offset{}
	for number := range partitions {
		offsets[number] = from
	}
	parts := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{kit.topic: offsets})
	return kit.client(append([]kgo.Opt{parts}, options...)...)
}

// receive polls until count records came, and fails when more come.
func (kit *Kit) receive(client *kgo.Client, count int) []*kgo.Record {
	ctx, cancel := context.WithTimeout(kit.ctx, wait)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	equal(count, len(records), "number of records")
	return records
}

func (kit *Kit) readAll(partitions int32, count int) []*kgo.Record {
	return kit.receive(kit.reader(partitions, kgo.NewOffset().AtStart()), count)
}

// Member is one of a group: it polls by itself until it leaves.
type Member struct {
	client  *kgo.Client
	lock    sync.Mutex
	owned   map[int32]bool
	revoked []int32
	records []*kgo.Record
	leave   func()
}

func (kit *Kit) member(options ...kgo.Opt) *Member {
	member := &Member{owned: map[int32]bool{}}
	change := func(owns, revokes bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			member.lock.Lock()
			defer member.lock.Unlock()
			for _, partition := range parts[kit.topic] {
				if owns {
					member.owned[partition] = true
				} else {
					delete(member.owned, partition)
				}
				if revokes {
					member.revoked = append(member.revoked, partition)
				}
			}
		}
	}
	common := []kgo.Opt{
		kgo.ConsumerGroup(kit.group),
		kgo.ConsumeTopics(kit.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(8 * time.Second),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(change(true, false)),
		kgo.OnPartitionsRevoked(change(false, true)),
		kgo.OnPartitionsLost(change(false, false)),
	}
	member.client = kit.client(append(common, options...)...)
	ctx, cancel := context.WithCancel(kit.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			records := member.client.PollFetches(ctx).Records()
			member.lock.Lock()
			member.records = append(member.records, records...)
			member.lock.Unlock()
		}
	}()
	var once sync.Once
	member.leave = func() {
		once.Do(func() {
			cancel()
			<-done
			member.client.Close()
		})
	}
	kit.closers = append(kit.closers, member.leave)
	return member
}

func (member *Member) owns() []int32 {
	member.lock.Lock()
	defer member.lock.Unlock()
	owned := []int32{}
	for partition := range member.owned {
		owned = append(owned, partition)
	}
	sort.Slice(owned, func(a, b int) bool { return owned[a] < owned[b] })
	return owned
}

func (member *Member) seen() []*kgo.Record {
	member.lock.Lock()
	defer member.lock.Unlock()
	return append([]*kgo.Record{}, member.records...)
}

// settle waits until the members share the partitions evenly, each with one owner.
func settle(partitions int, members ...*Member) {
	until(fmt.Sprintf("%d members share %d partitions", len(members), partitions), func() bool {
		all := map[int32]bool{}
		sum := 0
		for _, member := range members {
			owned := member.owns()
			sum += len(owned)
			for _, partition := range owned {
				all[partition] = true
			}
			if len(owned) < partitions/len(members) {
				return false
			}
		}
		return sum == partitions && len(all) == partitions
	})
}

func numbers(records []*kgo.Record) []int {
	values := []int{}
	for _, record := range records {
		number, err := strconv.Atoi(string(record.Value))
		must(err)
		values = append(values, number)
	}
	return values
}

func span(from, to int) []int {
	values := []int{}
	for number := from; number < to; number++ {
		values = append(values, number)
	}
	return values
}

func until(what string, holds func() bool) {
	deadline := time.Now().Add(wait)
	for !holds() {
		check(time.Now().Before(deadline), "waited %s in vain: %s", wait, what)
		time.Sleep(10 * time.Millisecond)
	}
}

// answered asks until the broker that has to answer is there: kadm 1.19.0 sends what it splits by brokers to each of them
// once (kgo's isDialNonTimeoutErr leaves it to the caller), and the metadata that it splits by may name one that has died.
func answered[T any](ask func() (T, error)) T {
	var answer T
	until("an answer", func() bool {
		var err error
		answer, err = ask()
		if inChaos && gone(err) {
			return false
		}
		must(err)
		return true
	})
	return answer
}

// gone is whether nobody listened, or somebody was killed, where the answers that are missing should have come from.
func gone(err error) bool {
	var shards *kadm.ShardErrors
	if !errors.As(err, &shards) {
		return false
	}
	for _, shard := range shards.Errs {
		var failed *net.OpError
		var ended *kgo.ErrFirstReadEOF
		if !errors.As(shard.Err, &ended) && !(errors.As(shard.Err, &failed) && failed.Op == "dial") {
			return false
		}
	}
	return true
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Errorf(format, arguments...))
	}
}

func equal(wanted, found any, what string) {
	check(reflect.DeepEqual(wanted, found), "%s: wanted %v, found %v", what, wanted, found)
}

func refused(wanted *kerr.Error, err error) {
	check(errors.Is(err, wanted), "wanted %v, found %v", wanted.Message, err)
}
