// kafkajs' transactions. An exported function is a scenario by its name.
"use strict";

const assert = require("node:assert/strict");
const { IN_CHAOS, until } = require("./kit.js");

const TRIES = 8;
const numbers = (records) => records.map(({ message }) => Number(message.value));
const range = (from, to) => Array.from({ length: to - from }, (_, n) => from + n);
const transactional = (kit, name) =>
  kit.producer({ transactionalId: `${kit.group}.${name}`, idempotent: true, maxInFlightRequests: 1 });

/** One transaction, committed; while leaders die, as many aborted ones before it as that takes. */
async function transact(producer, work) {
  for (let left = TRIES - 1; ; left--) {
    const transaction = await producer.transaction();
    try {
      await work(transaction);
      return await transaction.commit();
    } catch (error) {
      if (!IN_CHAOS || left === 0) throw error;
      if (transaction.isActive()) await transaction.abort();
    }
  }
}

/** What a transaction that is aborted anyway fails with while leaders die: it asks its coordinator once. What is read is looked at. */
function forgiven(error) {
  const lost = error.name.startsWith("KafkaJSConnection") || error.type === "NOT_COORDINATOR_FOR_GROUP";
  if (!IN_CHAOS || !lost) throw error;
}

module.exports = {
  async transactions_are_read_whole_or_not_at_all(kit) {
    await kit.create(2);
    const producer = await transactional(kit, "writer");
    const send = (transaction, first) => kit.send(transaction, first, 10, { partitions: 2 });
    for (const round of range(0, 5)) {
      const aborted = await producer.transaction();
      await send(aborted, 1000).catch(forgiven);
      await aborted.abort();
      await transact(producer, (transaction) => send(transaction, round * 10));
    }
    const read = await kit.readAll(50);
    assert.deepEqual(numbers(read.filter(({ partition }) => partition === 0)), range(0, 25).map((n) => 2 * n));
    assert.deepEqual(numbers(read.filter(({ partition }) => partition === 1)), range(0, 25).map((n) => 2 * n + 1));
  },

  async a_reader_waits_at_an_open_transaction(kit) {
    await kit.create();
    const open = await (await transactional(kit, "slow")).transaction();
    await kit.send(open, 0, 1);
    await kit.send(await kit.producer(), 1, 1);
    const committed = await kit.member({ groupId: `${kit.group}.committed` });
    const all = await kit.member({ groupId: `${kit.group}.all`, readUncommitted: true });
    await until("what is not committed", () => all.records.length === 2);
    assert.deepEqual(numbers(committed.records), []);
    await open.commit();
    await until("what is committed", () => committed.records.length === 2);
    assert.deepEqual(numbers(committed.records), [0, 1]);
  },

  async offsets_come_with_the_commit_and_not_with_an_abort(kit) {
    await kit.create();
    const producer = await transactional(kit, "writer");
    const admin = await kit.admin();
    const send = (transaction, offset) =>
      transaction.sendOffsets({
        consumerGroupId: kit.group,
        topics: [{ topic: kit.topic, partitions: [{ partition: 0, offset }] }],
      });
    const committed = async () => {
      const [there] = await admin.fetchOffsets({ groupId: kit.group, topics: [kit.topic] });
      return there.partitions[0].offset;
    };
    const aborted = await producer.transaction();
    // kafkajs asks for a group's coordinator once a transaction (eosManager): one that has moved ends the try, and it is aborted anyway.
    await send(aborted, "5").catch(forgiven);
    await aborted.abort();
    assert.equal(await committed(), "-1");
    await transact(producer, (transaction) => send(transaction, "8"));
    await until("the offset", async () => (await committed()) === "8");
  },

  async a_second_producer_with_the_same_id_fences_the_first(kit) {
    await kit.create();
    const zombie = await transactional(kit, "writer");
    const open = await zombie.transaction();
    await kit.send(open, 666, 1);
    const heir = await transactional(kit, "writer");
    await transact(heir, (transaction) => kit.send(transaction, 1, 1));
    await assert.rejects(open.commit(), (error) => {
      assert.ok(["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"].includes(error.type), error.stack);
      return true;
    });
    assert.deepEqual(numbers(await kit.readAll(1)), [1]);
  },
};
