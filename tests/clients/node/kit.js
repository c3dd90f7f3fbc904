// What a scenario works with: clients that are closed at its end, names of its own, loops that end.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const NODES = Number(process.env.FENCEPOST_TEST_NODES ?? 1);
const IN_CHAOS = process.env.FENCEPOST_TEST_AGAINST === "cluster-chaos"; // a retry must not double
const WAIT_MS = IN_CHAOS ? 75_000 : 25_000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function until(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${WAIT_MS} ms in vain: ${what}`);
    await pause(20);
  }
}

const byPartition = (parts) => [...parts].sort((a, b) => a.partition - b.partition);

class Kit {
  constructor(bootstrap, scenario) {
    const stem = `${scenario}.${process.pid}`;
    this.topic = `kafkajs.${stem}`;
    this.group = `kafkajs-group.${stem}`;
    this.complaints = []; // what the client logged as an error
    this.open = [];
    this.kafka = new Kafka({
      clientId: "kafkajs-scenario",
      brokers: bootstrap.split(","),
      logLevel: logLevel.ERROR,
      logCreator: () => ({ log }) => this.complaints.push(JSON.stringify(log)),
      retry: { initialRetryTime: 50, retries: 6 },
    });
  }

  async opened(client) {
    await client.connect();
    this.open.push(client);
    return client;
  }

  async admin() {
    this.theAdmin ??= await this.opened(this.kafka.admin());
    return this.theAdmin;
  }

  producer(options = {}) {
    return this.opened(this.kafka.producer({ allowAutoTopicCreation: false, idempotent: IN_CHAOS, ...options }));
  }

  async create(numPartitions = 1, config = {}) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const wanted = { topic: this.topic, numPartitions, replicationFactor: Math.min(NODES, 3), configEntries };
    const admin = await this.admin();
    for (const started = Date.now(); ; await pause(100)) {
      try {
        return await admin.createTopics({ topics: [wanted], waitForLeaders: true }); // false: it is there
      } catch (error) {
        // The broker that was asked may have died with the answer; the name is this scenario's own.
        if (!IN_CHAOS || Date.now() - started > WAIT_MS) throw error;
      }
    }
  }

  /** The numbers from `first` to `first + count`, in turn to each partition. */
  async send(producer, first, count, { partitions = 1, ...options } = {}) {
    const messages = [];
    for (let n = first; n < first + count; n++) {
      messages.push({ value: `${n}`, partition: n % partitions });
    }
    return producer.send({ topic: this.topic, messages, ...options });
  }

  /**
   * A running member. `records` grows, `assigned` is what it has, `assignments` how often it was told.
   * kafkajs commits what was handed over when it stops.
   */
  async member(options = {}, run = {}, subscription = {}) {
    const consumer = this.kafka.consumer({
      groupId: this.group,
      heartbeatInterval: 100,
      sessionTimeout: 8_000,
      maxWaitTimeInMs: 200,
      ...options,
    });
    const member = { consumer, records: [], assigned: [], assignments: 0 };
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      member.assigned = payload.memberAssignment[this.topic] ?? [];
      member.assignments += 1;
      member.id = payload.memberId;
    });
    await this.opened(consumer);
    await consumer.subscribe({ topics: [this.topic], fromBeginning: true, ...subscription });
    await consumer.run({
      eachMessage: async (payload) => void member.records.push(payload),
      ...run,
    });
    return member;
  }

  async leave(member) {
    this.open.splice(this.open.indexOf(member.consumer), 1);
    await member.consumer.disconnect();
  }

  /** What `count` records read from the beginning are, in the order of arrival. */
  async readAll(count) {
    const member = await this.member({ groupId: `${this.group}.reader` });
    // A reader that lost its broker starts again where it committed: what it is handed twice has the same offset.
    const once = () => [...new Map(member.records.map((one) => [`${one.partition}-${one.message.offset}`, one])).values()];
    await until(`${count} records`, () => once().length >= count);
    await this.leave(member);
    return once();
  }

  async close() {
    for (const client of this.open.reverse()) await client.disconnect();
  }
}

module.exports = { Kit, NODES, IN_CHAOS, until, pause, byPartition };
