// kafkajs: what a program in JavaScript does with a broker. An exported function is a scenario by its name.
"use strict";

const assert = require("node:assert/strict");
const { CompressionTypes, ConfigResourceTypes, AssignerProtocol, PartitionAssigners } = require("kafkajs");
const { NODES, IN_CHAOS, until, pause, byPartition, lostBroker } = require("./kit.js");

const range = (from, to) => Array.from({ length: to - from }, (_, n) => from + n);
const numbers = (records) => records.map(({ message }) => Number(message.value));
const refused = (type) => (error) => {
  const cause = error.errors?.[0] ?? error.cause ?? error; // an aggregate, or retries that gave up
  assert.equal(cause.type, type, cause.stack);
  return true;
};

/** Wait until the members share the topic evenly, each partition with one owner. */
async function settle(members, partitions) {
  await until(`${members.length} members share ${partitions} partitions`, () => {
    const all = members.flatMap(({ assigned }) => assigned);
    const least = Math.min(...members.map(({ assigned }) => assigned.length));
    const whole = new Set(all).size === partitions && all.length === partitions;
    return whole && least >= Math.floor(partitions / members.length);
  });
}

const produce = {
  async every_level_of_acks_writes_every_record_in_order(kit) {
    await kit.create();
    const producer = await kit.producer();
    await kit.send(producer, 0, 100, { acks: 1 });
    const [told] = await kit.send(producer, 100, 100, { acks: -1 });
    assert.equal(told.baseOffset, "100");
    await kit.send(producer, 200, 100, { acks: 0 });
    assert.deepEqual(numbers(await kit.readAll(300)), range(0, 300));
  },

  async gzip_passes_through(kit) {
    await kit.create();
    const value = "the same words again and again ".repeat(100);
    const messages = range(0, 100).map((n) => ({ key: `${n}`, value: value + n }));
    const producer = await kit.producer();
    await producer.send({ topic: kit.topic, messages, compression: CompressionTypes.GZIP });
    const records = await kit.readAll(100);
    assert.deepEqual(records.map(({ message }) => `${message.value}`), messages.map((m) => m.value));
  },

  async headers_keys_and_nulls_come_back(kit) {
    await kit.create();
    const messages = [
      { key: "key", value: "value", headers: { one: "1", two: ["2", "again"] }, timestamp: "1700000000123" },
      { key: null, value: null },
      { key: "", value: "" },
    ];
    await (await kit.producer()).send({ topic: kit.topic, messages });
    const [first, second, third] = (await kit.readAll(3)).map(({ message }) => message);
    assert.equal(`${first.headers.one}`, "1");
    assert.deepEqual(first.headers.two.map(String), ["2", "again"]);
    assert.equal(first.timestamp, "1700000000123");
    assert.deepEqual([second.key, second.value], [null, null]);
    assert.deepEqual([`${third.key}`, `${third.value}`, third.value.length], ["", "", 0]);
  },

  async an_idempotent_producer_leaves_no_holes(kit) {
    await kit.create(3);
    const producer = await kit.producer({ idempotent: true, maxInFlightRequests: 1 });
    for (const batch of range(0, 20)) await kit.send(producer, batch * 30, 30, { partitions: 3 });
    const offsets = byPartition(await (await kit.admin()).fetchTopicOffsets(kit.topic));
    assert.deepEqual(offsets.map(({ high }) => high), ["200", "200", "200"]);
    const records = await kit.readAll(600);
    for (const part of range(0, 3)) {
      const mine = numbers(records.filter(({ partition }) => partition === part));
      assert.deepEqual(mine, range(0, 200).map((n) => n * 3 + part));
    }
  },

  async a_record_over_the_limit_is_refused_and_the_next_taken(kit) {
    await kit.create(1, { "max.message.bytes": "10000" });
    const producer = await kit.producer();
    const large = { topic: kit.topic, messages: [{ value: "x".repeat(20_000) }] };
    await assert.rejects(producer.send(large), refused("MESSAGE_TOO_LARGE"));
    await kit.send(producer, 1, 1);
    assert.deepEqual(numbers(await kit.readAll(1)), [1]);
  },

  async many_topics_are_written_in_one_batch(kit) {
    await kit.create(2);
    const producer = await kit.producer({ allowAutoTopicCreation: true });
    const other = `${kit.topic}.made-by-writing`;
    const topicMessages = [
      { topic: kit.topic, messages: [{ value: "1", partition: 1 }] },
      { topic: other, messages: [{ value: "2" }] },
    ];
    const told = await producer.sendBatch({ topicMessages });
    assert.deepEqual(told.map(({ errorCode }) => errorCode), [0, 0]);
    assert.ok((await (await kit.admin()).listTopics()).includes(other));
  },
};

const consume = {
  async a_reader_seeks_where_it_wants(kit) {
    await kit.create();
    await kit.send(await kit.producer(), 0, 100);
    const member = await kit.member();
    await until("all", () => member.records.length === 100);
    for (const offset of [57, 3]) {
      await kit.undisturbed(member, () => member.assignments + kit.crashes, async (until) => {
        member.records.length = 0;
        member.consumer.seek({ topic: kit.topic, partition: 0, offset: `${offset}` });
        await until(`from ${offset}`, () => member.records.length === 100 - offset);
        assert.deepEqual(numbers(member.records), range(offset, 100));
      });
    }
  },

  async a_reader_from_the_end_sees_only_what_is_new(kit) {
    await kit.create();
    const producer = await kit.producer();
    await kit.send(producer, 0, 10);
    const member = await kit.member({}, {}, { fromBeginning: false });
    await settle([member], 1);
    let next = 10;
    await kit.undisturbed(member, () => member.assignments + kit.crashes, async (until) => {
      const first = next;
      next += 5;
      const come = () => numbers(member.records).filter((number) => number < 10 || number >= first);
      await pause(500); // it finds the end with its first fetch, of which it says nothing
      await kit.send(producer, first, 5);
      await until("new records", () => come().length >= 5);
      assert.deepEqual(come(), range(first, first + 5));
    });
  },

  async an_offset_out_of_range_is_reset(kit) {
    await kit.create();
    await kit.send(await kit.producer(), 0, 10);
    const member = await kit.member();
    await until("all", () => member.records.length === 10);
    await kit.undisturbed(member, () => member.assignments + kit.crashes, async (until) => {
      member.records.length = 0;
      member.consumer.seek({ topic: kit.topic, partition: 0, offset: "1000" });
      await until("all again", () => member.records.length === 10);
      assert.deepEqual(numbers(member.records), range(0, 10));
    });
  },

  async a_paused_partition_is_silent_until_it_is_resumed(kit) {
    await kit.create(2);
    const member = await kit.member();
    const producer = await kit.producer();
    await settle([member], 2);
    let next = 0;
    await kit.undisturbed(member, () => kit.crashes, async (until) => {
      const first = next;
      next += 40;
      const come = () => member.records.filter(({ message }) => Number(message.value) >= first);
      member.consumer.pause([{ topic: kit.topic, partitions: [1] }]);
      await kit.send(producer, first, 40, { partitions: 2 });
      await until("the loud one", () => come().length >= 20);
      await pause(300);
      assert.deepEqual(new Set(come().map(({ partition }) => partition)), new Set([0]));
      member.consumer.resume([{ topic: kit.topic, partitions: [1] }]);
      await until("the silent one", () => come().length === 40);
    });
  },

  async whole_batches_are_handed_over(kit) {
    await kit.create();
    await kit.send(await kit.producer(), 0, 500);
    const seen = [];
    const eachBatch = async ({ batch }) => void seen.push(batch);
    await kit.member({ maxBytesPerPartition: 1_000 }, { eachBatch, eachMessage: undefined });
    const offsets = () => seen.flatMap(({ messages }) => messages.map(({ offset }) => offset));
    // A member whose commit died with its coordinator is handed a batch again.
    const count = () => (IN_CHAOS ? new Set(offsets()).size : offsets().length);
    await until("all", () => count() === 500);
    assert.equal(seen.at(-1).highWatermark, "500");
    assert.equal(seen.at(-1).offsetLag(), "0");
  },
};

const groups = {
  async members_share_partitions_as_they_come_and_go(kit) {
    await kit.create(6);
    const members = [];
    for (const _ of range(0, 3)) {
      members.push(await kit.member());
      await settle(members, 6);
    }
    await kit.leave(members.shift());
    await settle(members, 6);
    await kit.leave(members.pop());
    await settle(members, 6);
    await kit.send(await kit.producer(), 0, 60, { partitions: 6 });
    await until("every record", () => members[0].records.length === 60);
  },

  async nothing_is_lost_over_a_rebalance(kit) {
    await kit.create(4);
    const producer = await kit.producer();
    const first = await kit.member({}, { autoCommitThreshold: 1 });
    await settle([first], 4);
    const writing = (async () => {
      for (const batch of range(0, 40)) {
        await kit.send(producer, batch * 20, 20, { partitions: 4 });
        await pause(20);
      }
    })();
    const second = await kit.member({}, { autoCommitThreshold: 1 });
    await settle([first, second], 4);
    await writing;
    const seen = () => new Set(numbers([...first.records, ...second.records]));
    const missing = () => {
      const members = [first, second].map(({ id, assigned, assignments }) => ({ id, assigned, assignments }));
      const numbers = range(0, 800).filter((number) => !seen().has(number));
      return JSON.stringify({ numbers, members, crashes: kit.crashes });
    };
    // Each record costs a commit of its own, and on a machine with much to do a commit may take a second: as long as it goes on.
    for (let size = 0; size < 800; size = seen().size) await until(missing, () => seen().size > size);
  },

  async a_group_goes_on_where_it_committed(kit) {
    await kit.create();
    await kit.send(await kit.producer(), 0, 20);
    const first = await kit.member({}, { autoCommit: false });
    await until("all", () => first.records.length === 20);
    const admin = await kit.admin();
    // `commitOffsets` of a consumer that is about to start again resolves, and commits nothing (runner.js).
    await kit.undisturbed(first, () => kit.crashes, async () => {
      await first.consumer.commitOffsets([{ topic: kit.topic, partition: 0, offset: "12", metadata: "half way" }]);
      const [there] = await admin.fetchOffsets({ groupId: kit.group, topics: [kit.topic] });
      assert.deepEqual(there.partitions, [{ partition: 0, offset: "12", metadata: "half way" }]);
    });
    await kit.leave(first);
    const next = await kit.member();
    await until("the rest", () => next.records.length === 8);
    assert.deepEqual(numbers(next.records), range(12, 20));
  },

  async a_member_that_is_slow_to_answer_keeps_its_place(kit) {
    await kit.create();
    await kit.send(await kit.producer(), 0, 3);
    const seen = [];
    const eachMessage = async ({ message, heartbeat }) => {
      for (const _ of range(0, 4)) {
        await pause(100);
        await heartbeat();
      }
      const number = Number(message.value);
      if (!IN_CHAOS || !seen.includes(number)) seen.push(number);
    };
    const member = await kit.member({ sessionTimeout: 6_000 }, { eachMessage });
    await until("all", () => seen.length === 3);
    // kafkajs takes NOT_COORDINATOR for a rebalance (errors.js, isRebalancing): it joins again when its coordinator moves.
    if (!IN_CHAOS) assert.equal(member.assignments, 1);
    assert.deepEqual(seen, [0, 1, 2]);
  },

  async a_members_own_assigner_decides(kit) {
    await kit.create(4);
    // All to the member whose user data says so: the broker must pass what it does not understand.
    const everythingToOne = ({ cluster }) => ({
      name: "EverythingToOne",
      version: 1,
      protocol: ({ topics }) => ({
        name: "EverythingToOne",
        metadata: AssignerProtocol.MemberMetadata.encode({ version: 1, topics, userData: Buffer.from("me") }),
      }),
      assign: async ({ members, topics }) =>
        members
          .map(({ memberId }) => memberId)
          .sort()
          .map((memberId, index) => ({
            memberId,
            memberAssignment: AssignerProtocol.MemberAssignment.encode({
              version: 1,
              userData: Buffer.alloc(0),
              assignment: index
                ? {}
                : Object.fromEntries(
                    topics.map((t) => [t, cluster.findTopicPartitionMetadata(t).map((p) => p.partitionId)]),
                  ),
            }),
          })),
    });
    const options = { partitionAssigners: [everythingToOne, PartitionAssigners.roundRobin] };
    const members = [await kit.member(options), await kit.member(options)];
    await until("one has all", () => {
      const [one, other] = members.map(({ assigned }) => assigned.length).sort();
      return one === 0 && other === 4 && members.every(({ assignments }) => assignments >= 1);
    });
  },
};

const admin = {
  async topics_are_made_described_grown_and_deleted(kit) {
    await kit.create(2, { "retention.ms": "60000" });
    const admin = await kit.admin();
    const [again, twice] = [await admin.createTopics({ topics: [{ topic: kit.topic }] }), await admin.listTopics()];
    assert.equal(again, false, "exists already");
    assert.ok(twice.includes(kit.topic));
    await admin.createPartitions({ topicPartitions: [{ topic: kit.topic, count: 5 }] });
    await until("five partitions", async () => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [kit.topic] });
      return topics[0].partitions.length === 5;
    });
    const fewer = admin.createPartitions({ topicPartitions: [{ topic: kit.topic, count: 1 }] });
    await assert.rejects(fewer, refused("INVALID_PARTITIONS"));
    await admin.deleteTopics({ topics: [kit.topic] });
    await until("it is gone", async () => !(await admin.listTopics()).includes(kit.topic));
    const unknown = admin.deleteTopics({ topics: [kit.topic] });
    await assert.rejects(unknown, refused("UNKNOWN_TOPIC_OR_PARTITION"));
    const bad = admin.createTopics({ topics: [{ topic: "a b" }] });
    await assert.rejects(bad, refused("INVALID_TOPIC_EXCEPTION"));
  },

  async settings_are_described_and_altered(kit) {
    await kit.create(1, { "cleanup.policy": "compact" });
    const admin = await kit.admin();
    const resource = { type: ConfigResourceTypes.TOPIC, name: kit.topic };
    const value = async (name) => {
      const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: [name] }] });
      return resources[0].configEntries.find((entry) => entry.configName === name).configValue;
    };
    assert.equal(await value("cleanup.policy"), "compact");
    const configEntries = [{ name: "retention.ms", value: "1234567" }]; // AlterConfigs sets all anew
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] });
    await until("the new value", async () => (await value("retention.ms")) === "1234567");
    assert.equal(await value("cleanup.policy"), "delete");
    const wrong = [{ name: "retention.ms", value: "soon" }];
    const altering = admin.alterConfigs({ resources: [{ ...resource, configEntries: wrong }] });
    await assert.rejects(altering, refused("INVALID_CONFIG"));
  },

  async offsets_are_listed_by_time_and_records_deleted(kit) {
    await kit.create();
    const messages = range(0, 10).map((n) => ({ value: `${n}`, timestamp: `${1_700_000_000_000 + n * 1000}` }));
    await (await kit.producer()).send({ topic: kit.topic, messages });
    const admin = await kit.admin();
    const [found] = await admin.fetchTopicOffsetsByTimestamp(kit.topic, 1_700_000_004_500);
    assert.equal(found.offset, "5");
    await admin.deleteTopicRecords({ topic: kit.topic, partitions: [{ partition: 0, offset: "4" }] });
    const [{ low, high }] = await admin.fetchTopicOffsets(kit.topic);
    assert.deepEqual([low, high], ["4", "10"]);
    assert.deepEqual(numbers(await kit.readAll(6)), range(4, 10));
  },

  async groups_are_listed_described_reset_and_deleted(kit) {
    await kit.create(2);
    await kit.send(await kit.producer(), 0, 10);
    const admin = await kit.admin();
    const member = await kit.member();
    await until("all", () => member.records.length === 10);
    const listed = (await admin.listGroups()).groups.find(({ groupId }) => groupId === kit.group);
    assert.equal(listed.protocolType, "consumer");
    let described;
    await until("it is stable", async () => {
      described = (await admin.describeGroups([kit.group])).groups[0];
      return described.state === "Stable" || !IN_CHAOS; // it may just be joining again
    });
    assert.equal(described.state, "Stable");
    assert.equal(described.protocol, "RoundRobinAssigner");
    assert.deepEqual(described.members.map((one) => one.memberId), [member.id]);
    await assert.rejects(admin.deleteGroups([kit.group]), (error) => error.groups[0].error.type === "NON_EMPTY_GROUP");
    await kit.leave(member);
    // A member says that it leaves only once: if its coordinator dies just then, it is missed after its session. To set
    // offsets, as `resolveOffsets` does too, the admin client has a member of its own come and leave (admin/index.js, setOffsets).
    const empty = async () => {
      try {
        return (await admin.describeGroups([kit.group])).groups[0].state === "Empty";
      } catch (error) {
        const moved = error.cause?.type === "NOT_COORDINATOR_FOR_GROUP"; // it asks the one that it found, again and again
        if (!IN_CHAOS || !(moved || lostBroker(error))) throw error;
        return false; // in half a minute some broker dies while it is asked
      }
    };
    await until("it has left", empty);
    await admin.resetOffsets({ groupId: kit.group, topic: kit.topic, earliest: true });
    await until("what reset them has left", empty);
    const [reset] = await admin.fetchOffsets({ groupId: kit.group, topics: [kit.topic], resolveOffsets: true });
    await until("what resolved them has left", empty);
    assert.deepEqual(byPartition(reset.partitions).map(({ offset }) => offset), ["0", "0"]);
    await admin.deleteGroups([kit.group]);
    assert.equal((await admin.describeGroups([kit.group])).groups[0].state, "Dead");
  },

  async the_cluster_describes_itself(kit) {
    const cluster = await (await kit.admin()).describeCluster();
    assert.equal(cluster.brokers.length, NODES);
    assert.ok(cluster.brokers.some((broker) => broker.nodeId === cluster.controller));
    assert.match(cluster.clusterId, /^[\w-]{22}$/);
  },
};

module.exports = { ...produce, ...consume, ...groups, ...admin };
