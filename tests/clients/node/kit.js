// What a scenario works with: clients that are closed at its end, names of its own, loops that end.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const NODES = Number(process.env.FENCEPOST_TEST_NODES ?? 1);
const IN_CHAOS = process.env.FENCEPOST_TEST_AGAINST === "cluster-chaos"; // a retry must not double
const WAIT_MS = IN_CHAOS ? 75_000 : 30_000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** `what` is waited for, in words; or a function that has the words for what there is instead. */
async function until(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) {
      throw new Error(`waited ${WAIT_MS} ms in vain: ${typeof what === "function" ? await what() : what}`);
    }
    await pause(20);
  }
}

/** An admin client whose errors say that they are its own: it sends a request only once, or again to the same broker. */
const marked = (admin) =>
  new Proxy(admin, {
    get(target, name) {
      if (typeof target[name] !== "function") return target[name];
      return (...values) => {
        const result = target[name](...values);
        return result?.catch ? result.catch((error) => Promise.reject(Object.assign(error, { ofAdmin: true }))) : result;
      };
    },
  });

/** The error behind retries that gave up, if it is an admin client's and says that its broker is gone. */
function lostBroker(error) {
  const last = error.name === "KafkaJSNumberOfRetriesExceeded" ? error.cause : error;
  return error.ofAdmin && last.name.startsWith("KafkaJSConnection") ? last : null;
}

const byPartition = (parts) => [...parts].sort((a, b) => a.partition - b.partition);

class Kit {
  constructor(bootstrap, scenario) {
    const stem = `${scenario}.${process.pid}`;
    this.topic = `kafkajs.${stem}`;
    this.group = `kafkajs-group.${stem}`;
    this.complaints = []; // what the client logged as an error
    this.crashes = 0; // of its consumers
    this.open = [];
    this.kafka = new Kafka({
      clientId: "kafkajs-scenario",
      brokers: bootstrap.split(","),
      logLevel: logLevel.ERROR,
      logCreator: () => ({ log }) => {
        this.complaints.push(JSON.stringify(log));
        if (log.message.startsWith("Crash: ")) this.crashes += 1; // the event of that name comes much later
      },
      retry: { initialRetryTime: 50, retries: 6 },
    });
  }

  async opened(client) {
    await client.connect();
    this.open.push(client);
    return client;
  }

  async admin() {
    this.theAdmin ??= marked(await this.opened(this.kafka.admin()));
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

  /**
   * The numbers from `first` to `first + count`, in turn to each partition; what kafkajs tells of the first request.
   * A partition that moves from a broker that dies to one that has already answered is left out by its second try, and by
   * what it tells (producer/sendMessages.js, `responsePerBroker`; kafkajs' issue 1303): while leaders die, those are sent again.
   */
  async send(producer, first, count, { partitions = 1, ...options } = {}) {
    let messages = [];
    for (let n = first; n < first + count; n++) {
      messages.push({ value: `${n}`, partition: n % partitions });
    }
    const answer = await producer.send({ topic: this.topic, messages, ...options });
    for (let told = answer; options.acks !== 0; ) {
      const written = new Set(told.map(({ partition }) => partition));
      messages = messages.filter(({ partition }) => !written.has(partition));
      if (messages.length === 0) break;
      if (!IN_CHAOS) throw new Error(`nothing is told of ${JSON.stringify(messages)}`);
      told = await producer.send({ topic: this.topic, messages, ...options });
    }
    return answer;
  }

  /**
   * A running member. `records` grows, `assigned` is what it has, `assignments` how often it was told.
   * kafkajs commits what was handed over when it stops; what it could not commit because its coordinator died it hands
   * over again, and that is in `records` once.
   */
  async member(options = {}, run = {}, subscription = {}) {
    const consumer = this.kafka.consumer({
      groupId: this.group,
      heartbeatInterval: 100,
      sessionTimeout: 8_000,
      maxWaitTimeInMs: 200,
      ...options,
    });
    const member = { consumer, records: [], assigned: [], assignments: 0, crashesBefore: 0 };
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      member.assigned = payload.memberAssignment[this.topic] ?? [];
      member.assignments += 1;
      member.crashesBefore = this.crashes;
      member.id = payload.memberId;
    });
    await this.opened(consumer);
    await consumer.subscribe({ topics: [this.topic], fromBeginning: true, ...subscription });
    const isThere = ({ partition, message }) =>
      member.records.some((one) => one.partition === partition && one.message.offset === message.offset);
    const eachMessage = async (payload) => {
      if (!IN_CHAOS || !isThere(payload)) member.records.push(payload);
    };
    await consumer.run({ eachMessage, ...run });
    return member;
  }

  /**
   * Take a step that rests on what a consumer remembers. kafkajs 2.2.4 forgets pauses, seeks and the end that a reader
   * without commits began at when a consumer crashes and starts again (consumer/index.js: `start` makes a new
   * ConsumerGroup), and all but pauses when it joins its group again (a new OffsetManager). While leaders die, a step
   * during which that happened (`forgetting` counts it) is taken anew, with an `until` of its own; any other failure stays one.
   */
  async undisturbed(member, forgetting, step) {
    for (const started = Date.now(); ; ) {
      await until("the consumer runs", () => member.crashesBefore === this.crashes);
      const before = forgetting();
      const check = () => {
        if (IN_CHAOS && forgetting() !== before) throw new Error("the consumer began anew");
      };
      try {
        return await step((what, condition) => until(what, () => (check(), condition())));
      } catch (error) {
        if (!IN_CHAOS || forgetting() === before || Date.now() - started > 2 * WAIT_MS) throw error;
      }
    }
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

module.exports = { Kit, NODES, IN_CHAOS, until, pause, byPartition, lostBroker };
