// Asks the built site's own search the questions of its readers: `node tests/site_search.mjs build/docs`.
// Each must find its page among the first four. The search is the theme's worker, run outside a browser.

import { readFileSync, readdirSync } from "node:fs";
import vm from "node:vm";

const QUESTIONS = [
  ["which concurrency", "what-to-set.html"],
  ["parallelism", "what-to-set.html"],
  ["shard size", "what-to-set.html"],
  ["image CUDA 12 driver", "how-to/own-model.html"],
  ["hub model no definition", "how-to/own-model.html"],
  ["own csv", "how-to/own-data.html"],
  ["CSV to KIE", "faq.html"],
  ["published score reproduce", "faq.html"],
  ["why not lmms-eval", "faq.html"],
  ["methods section of a paper", "faq.html"],
  ["cluster administrator", "for-admins.html"],
  ["slurmctld load", "for-admins.html"],
  ["root daemon", "for-admins.html"],
  ["SIGTERM", "troubleshooting.html"],
];

const site = process.argv[2];
const workers = `${site}/assets/javascripts/workers/`;
const program = readdirSync(workers).find((name) => name.endsWith(".js"));
let hear;
let answered;
const world = vm.createContext({
  console, performance, setTimeout, URL,
  location: { href: `http://site/${program}` },
  importScripts: () => {},
  addEventListener: (kind, listener) => { if (kind === "message") hear = listener; },
  postMessage: (message) => answered(message),
});
world.self = world.window = world;
vm.runInContext(readFileSync(workers + program, "utf8"), world);

// Kinds of messages of the theme's worker: 0 set up, 2 query.
const ask = (type, data) => new Promise((resolve) => { answered = resolve; void hear({ data: { type, data } }); });
const index = JSON.parse(readFileSync(`${site}/search/search_index.json`, "utf8"));
await ask(0, { config: index.config, docs: index.docs, options: { suggest: true } });

let failed = 0;
for (const [question, page] of QUESTIONS) {
  const { data } = await ask(2, question);
  const found = data.items.slice(0, 4).map(([best]) => best.location.split("#")[0]);
  if (!found.includes(page)) {
    failed += 1;
    console.error(`search for '${question}' does not find ${page} among the first four: ${found.join(", ")}`);
  }
}
process.exit(failed ? 1 : 0);
