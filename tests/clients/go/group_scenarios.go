package main

import (
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	register(map[string]func(*Kit){
		"members_share_by_range":                        sharing(kgo.Balancers(kgo.RangeBalancer())),
		"members_share_round_robin":                     sharing(kgo.Balancers(kgo.RoundRobinBalancer())),
		"members_share_stickily":                        sharing(kgo.Balancers(kgo.StickyBalancer())),
		"members_share_cooperatively":                   sharing(kgo.Balancers(kgo.CooperativeStickyBalancer())),
		"members_share_kip848_uniform":                  sharing(serverSide...),
		"members_share_kip848_range":                    sharing(kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()),
		"a_cooperative_member_keeps_what_it_can":        keeping(kgo.Balancers(kgo.CooperativeStickyBalancer())),
		"a_member_keeps_what_it_can_kip848":             keeping(serverSide...),
		"a_group_goes_on_where_it_committed":            resuming(),
		"a_group_goes_on_where_it_committed_kip848":     resuming(serverSide...),
		"a_static_member_comes_back_to_what_it_had":     returning(kgo.Balancers(kgo.RangeBalancer())),
		"nothing_is_lost_over_a_rebalance":              lossless(),
		"nothing_is_lost_over_a_rebalance_kip848":       lossless(serverSide...),
		"new_partitions_reach_a_group":                  growing(),
		"new_partitions_reach_a_group_kip848":           growing(serverSide...),
		"a_group_changes_its_protocol_member_by_member": migrating,
	})
}

var serverSide = []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()} // KIP-848

func sharing(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(6)
		var members []*Member
		for range 3 {
			members = append(members, kit.member(options...))
			settle(6, members...)
		}
		members[0].leave()
		settle(6, members[1:]...)
		members[2].leave()
		settle(6, members[1])
		kit.send(kit.producer(), 0, 60, 6)
		until("every record", func() bool { return len(members[1].seen()) == 60 })
	}
}

// keeping: incremental protocols take from a member only what another one gets.
func keeping(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(4)
		first := kit.member(options...)
		settle(4, first)
		second := kit.member(options...)
		settle(4, first, second)
		revoked := append([]int32{}, first.revoked...)
		sort.Slice(revoked, func(a, b int) bool { return revoked[a] < revoked[b] })
		equal(second.owns(), revoked, "what the first gave up is what the second got")
	}
}

func resuming(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(1)
		kit.send(kit.producer(), 0, 20, 1)
		first := kit.member(options...)
		until("all", func() bool { return len(first.seen()) == 20 })
		must(first.client.CommitRecords(kit.ctx, first.seen()[:12]...))
		first.leave()
		offsets, err := kit.admin.FetchOffsets(kit.ctx, kit.group)
		must(err)
		there, _ := offsets.Lookup(kit.topic, 0)
		equal(int64(12), there.At, "committed")
		next := kit.member(options...)
		until("the rest", func() bool { return len(next.seen()) == 8 })
		equal(span(12, 20), numbers(next.seen()), "after the commit")
		next.leave()
		if len(options) == 0 { // kadm asks for lag with DescribeGroups, which knows classic groups alone
			lag := answered(func() (kadm.DescribedGroupLags, error) { return kit.admin.Lag(kit.ctx, kit.group) })
			must(lag.Error())
			equal(int64(8), lag[kit.group].Lag.Total(), "lag")
		}
	}
}

// returning: not with KIP-848, where kgo 1.22.2 leaves without its instance id; Kafka and we refuse that
// (INVALID_REQUEST), and the name stays taken until the session ends.
func returning(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(4)
		other := kit.member(append(options, kgo.InstanceID("other"))...)
		settle(4, other)
		mine := append(options, kgo.InstanceID("one"))
		one := kit.member(mine...)
		settle(4, other, one)
		before, kept := one.owns(), other.owns()
		revoked := len(other.revoked)
		one.leave()
		again := kit.member(mine...)
		settle(4, other, again)
		equal(before, again.owns(), "what it has again")
		equal(kept, other.owns(), "what the other has")
		equal(revoked, len(other.revoked), "how much was taken from the other")
	}
}

// lossless: with a commit after every poll and before every revocation, nobody misses a record.
func lossless(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(4)
		automatic := append(options, kgo.AutoCommitInterval(100*time.Millisecond))
		first := kit.member(automatic...)
		settle(4, first)
		producer := kit.producer()
		members := []*Member{first}
		for batch := range 40 {
			kit.send(producer, batch*20, 20, 4)
			time.Sleep(20 * time.Millisecond)
			if batch == 10 || batch == 20 {
				members = append(members, kit.member(automatic...))
			}
			if batch == 30 {
				members[1].leave()
			}
		}
		until("every record", func() bool {
			seen := map[int]bool{}
			for _, member := range members {
				for _, number := range numbers(member.seen()) {
					seen[number] = true
				}
			}
			return len(seen) == 800
		})
	}
}

func growing(options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(1)
		member := kit.member(append(options, kgo.MetadataMaxAge(300*time.Millisecond))...)
		settle(1, member)
		responses, err := kit.admin.UpdatePartitions(kit.ctx, 3, kit.topic)
		must(err)
		must(responses.Error())
		settle(3, member)
	}
}

// migrating: from the classic protocol to KIP-848 and back, while the group goes on.
func migrating(kit *Kit) {
	kit.create(4)
	cooperative := kgo.Balancers(kgo.CooperativeStickyBalancer())
	old := kit.member(cooperative)
	settle(4, old)
	modern := kit.member(serverSide...)
	settle(4, old, modern)
	old.leave()
	settle(4, modern)
	equal("Stable", kit.described()[kit.group].State, "state")
	again := kit.member(cooperative)
	settle(4, modern, again)
	modern.leave()
	settle(4, again)
}

func init() {
	register(map[string]func(*Kit){
		"groups_are_listed_described_and_deleted":        describing("classic", "cooperative-sticky"),
		"groups_are_listed_described_and_deleted_kip848": describing("consumer", "uniform", serverSide...),
		"group_offsets_are_set_listed_and_deleted":       groupOffsets,
		"a_static_member_is_removed_by_its_name":         removing,
	})
}

func (kit *Kit) described() kadm.DescribedConsumerGroups {
	return answered(func() (kadm.DescribedConsumerGroups, error) {
		return kit.admin.DescribeConsumerGroups(kit.ctx, kit.group)
	})
}

func (kit *Kit) describedClassic() kadm.DescribedGroups {
	return answered(func() (kadm.DescribedGroups, error) { return kit.admin.DescribeGroups(kit.ctx, kit.group) })
}

func describing(kind, assignor string, options ...kgo.Opt) func(*Kit) {
	return func(kit *Kit) {
		kit.create(2)
		member := kit.member(append(options, kgo.ClientID("somebody"))...)
		settle(2, member)
		until("stable", func() bool {
			listed := answered(func() (kadm.ListedGroups, error) {
				return kit.admin.ListGroupsByType(kit.ctx, []string{kind}, "Stable")
			})
			_, there := listed[kit.group]
			return there
		})
		id, _ := member.client.GroupMetadata()
		if kind == "classic" {
			described := kit.describedClassic()
			equal(assignor, described[kit.group].Protocol, "assignor")
			equal(id, described[kit.group].Members[0].MemberID, "member id")
			equal("somebody", described[kit.group].Members[0].ClientID, "client id")
		} else {
			described := kit.described()
			equal(assignor, described[kit.group].AssignorName, "assignor")
			equal(id, described[kit.group].Members[0].MemberID, "member id")
			equal("somebody", described[kit.group].Members[0].ClientID, "client id")
		}
		_, err := kit.admin.DeleteGroup(kit.ctx, kit.group)
		refused(kerr.NonEmptyGroup, err)
		member.leave()
		_, err = kit.admin.DeleteGroup(kit.ctx, kit.group)
		must(err)
		_, err = kit.admin.DeleteGroup(kit.ctx, kit.group)
		refused(kerr.GroupIDNotFound, err)
	}
}

func groupOffsets(kit *Kit) {
	kit.create(2)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: kit.topic, Partition: 0, At: 5, LeaderEpoch: -1, Metadata: "a note"})
	offsets.Add(kadm.Offset{Topic: kit.topic, Partition: 1, At: 7, LeaderEpoch: -1})
	must(kit.admin.CommitAllOffsets(kit.ctx, kit.group, offsets))
	found, err := kit.admin.FetchOffsets(kit.ctx, kit.group)
	must(err)
	first, _ := found.Lookup(kit.topic, 0)
	equal("a note", first.Metadata, "the note")
	deleted, err := kit.admin.DeleteOffsets(kit.ctx, kit.group, kadm.TopicsSet{kit.topic: {0: {}}})
	must(err)
	must(deleted.Error())
	found, err = kit.admin.FetchOffsets(kit.ctx, kit.group)
	must(err)
	_, there := found.Lookup(kit.topic, 0)
	check(!there, "the deleted offset is still there")
	second, _ := found.Lookup(kit.topic, 1)
	equal(int64(7), second.At, "the other offset")
}

func removing(kit *Kit) {
	kit.create(1)
	member := kit.member(kgo.InstanceID("the static one"))
	settle(1, member)
	who := kadm.LeaveGroup(kit.group).InstanceIDs("the static one").Reason("for the test")
	responses, err := kit.admin.LeaveGroup(kit.ctx, who)
	must(err)
	must(responses.Error())
	equal("Empty", kit.describedClassic()[kit.group].State, "state")
}
