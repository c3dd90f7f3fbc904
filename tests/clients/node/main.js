// Runs the scenarios that it is told, a few at a time, and prints one JSON line for each:
// {"name": …, "ok": …, "seconds": …, "error": …, "gave_up": null or {"broker", "at"}}. Arguments: bootstrap, then names.
"use strict";

const { Kit, IN_CHAOS, lostBroker } = require("./kit.js");
const scenarios = { ...require("./scenarios.js"), ...require("./transactions.js") };

const AT_A_TIME = 4;
const TIMEOUT_MS = IN_CHAOS ? 240_000 : 120_000;
// What DeleteGroups answers while the coordinator moves. Clients ask again; kafkajs looks for the code in the wrong place.
const MOVES = ["NOT_COORDINATOR_FOR_GROUP", "GROUP_COORDINATOR_NOT_AVAILABLE", "GROUP_LOAD_IN_PROGRESS"];

// What kafkajs' admin client gave up: whose answer was missing, and when; or a group whose coordinator moved, as the answer
// said. It sends a request only once, or some times to the coordinator that it once found (describeGroups), and asks nobody
// else. `client_programs.py` looks whether that broker was dead just then.
function gaveUp(failed) {
  if (!failed.ofAdmin) return null;
  const at = Date.now() / 1000;
  if (failed.name === "KafkaJSDeleteGroupsError") {
    const moved = failed.groups.length > 0 && failed.groups.every(({ error }) => MOVES.includes(error.type));
    return moved ? { broker: null, at } : null;
  }
  const last = lostBroker(failed);
  return last ? { broker: last.broker ?? "", at } : null;
}

async function runOne(bootstrap, name) {
  const started = Date.now();
  const kit = new Kit(bootstrap, name);
  let error = null;
  let gave_up = null;
  let timer;
  try {
    if (!(name in scenarios)) throw new Error("no scenario has this name");
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`did not end within ${TIMEOUT_MS} ms`)), TIMEOUT_MS);
    });
    await Promise.race([scenarios[name](kit), late]);
  } catch (failed) {
    gave_up = gaveUp(failed);
    error = [failed.stack, "the client logged:", ...kit.complaints.slice(-10)].join("\n");
  } finally {
    clearTimeout(timer);
    await kit.close().catch((failed) => (error ??= `close: ${failed.stack}`));
  }
  const seconds = (Date.now() - started) / 1000;
  console.log(JSON.stringify({ name, ok: error === null, seconds, error, gave_up }));
}

async function main([bootstrap, ...names]) {
  const waiting = [...names];
  const work = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) await runOne(bootstrap, name);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  process.exit(0); // a scenario that hung keeps its sockets
}

main(process.argv.slice(2));
