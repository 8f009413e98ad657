// Asks the built site's own search the questions of its readers: `node tests/site_search.mjs build/docs`.
// Each must find a page that answers it among the first two. The search is the theme's worker, run outside a browser.

import { readFileSync, readdirSync } from "node:fs";
import vm from "node:vm";

// A question in a reader's words: pages that answer it, one of which has to be found.
const QUESTIONS = `
  which concurrency: what-to-set faq
  parallelism: what-to-set
  shard size: what-to-set faq
  image CUDA 12 driver: how-to/own-model faq
  hub model no definition: how-to/own-model
  own csv: faq how-to/own-data
  CSV to KIE: faq
  published score reproduce: faq
  why not lmms-eval: faq
  methods section of a paper: faq
  cluster administrator: for-admins
  slurmctld load: for-admins
  root daemon: for-admins
  SIGTERM: troubleshooting
  from my own CSV to KIE: faq tutorial-own-data how-to/own-data
  what is a shard: glossary what-to-set
  document: glossary
  out of memory: troubleshooting
  command not found: troubleshooting install
  killed job resume: tutorial-cluster reliability troubleshooting faq
  how many requests at once: faq
  how many workers: faq
  number of GPUs: faq
  driver too old: how-to/own-model troubleshooting
  CUDA 12: how-to/own-model faq
  docker image for old driver: how-to/own-model images faq
  run a Hugging Face model: how-to/own-model
  model without definition: how-to/own-model models faq
  add a new model: faq
  own dataset: how-to/own-data tutorial-own-data
  invoices csv: tutorial-own-data how-to/own-data faq
  extract fields from invoices: faq tutorial-own-data how-to/own-data
  reproduce a paper's score: faq benchmarks
  reproduce published score: faq benchmarks
  lmms-eval: faq how-to/move-from-other-kits
  difference to VLMEvalKit: faq how-to/move-from-other-kits
  methods section: faq how-to/share-results
  cite in a paper: faq how-to/share-results
  admin: for-admins
  is it safe on our login node: faq
  does it need root: for-admins faq
  how many files inodes: for-admins
  load on slurmctld: for-admins
  no internet: how-to/offline-cluster
  air-gapped cluster: how-to/offline-cluster
  unknown key: troubleshooting
  CUDA out of memory: troubleshooting
  job killed: faq
  time limit reached: troubleshooting
  disk quota exceeded: troubleshooting
  certificate not trusted: troubleshooting
  No CUDA GPUs are available: troubleshooting
  AF_UNIX path too long: troubleshooting
  ModuleNotFoundError: troubleshooting install
  permission denied: troubleshooting
  wide interval: faq
  what is coverage: glossary status
  what is TTFT: glossary measuring
  agent with tools: agents faq
  LLM as a judge: faq
  judge: judging faq
  model too large for one node: engines cluster-guide faq
  several nodes: engines
  tensor parallel: faq
  MCP server: agents faq
  list of benchmarks: benchmarks
  DocVQA: benchmarks how-to/offline-cluster
  which models are supported: models faq
  API key: engines faq portal-security
  OpenAI compatible endpoint: engines faq
  vLLM options: engines
  delete old experiments: faq for-admins
  compare two models: comparing tutorial-cluster
  nightly: how-to/nightly-gate
  statistical significance: faq
  кластер без интернета: ru/tutorial-cluster
  свои данные: ru/tutorial-own-data
  своя таблица CSV: ru/tutorial-own-data
  установка: ru/tutorial ru/tutorial-cluster
  демо на ноутбуке: ru/tutorial
  продолжить после сбоя: ru/tutorial-cluster
  сравнить два запуска: ru/tutorial-cluster
  доверительный интервал: ru/tutorial
  что такое воркер: ru/tutorial-cluster
  распределение по шардам: ru/tutorial-cluster
  отчёт: ru/tutorial
  портал: ru/tutorial
  метрики: ru/tutorial ru/tutorial-own-data
  извлечение полей: ru/tutorial-own-data
  задания убиты: ru/tutorial-cluster
  hpcbench: command not found: troubleshooting
  No module named: troubleshooting
  sbatch refused: troubleshooting
  jobs wait in queue: faq status tutorial-cluster troubleshooting
  job lost: troubleshooting
  incomplete: faq troubleshooting status
  INCONCLUSIVE: troubleshooting glossary gate
  image not on this machine: troubleshooting
  429 too many requests: troubleshooting engines
  write a metric: how-to/own-metric
  custom metric: how-to/own-metric
  metric plugin: how-to/own-metric plugins
  share results with colleague: how-to/share-results
  export results to Excel csv: exports
  MLflow: trackers
  Slack notification: ci
  PDF pages: data how-to/own-data install
  few-shot examples: data
  temperature: definitions data
  GPU hours cost: faq what-to-set measuring
  energy: measuring
  uninstall: for-admins
  upgrade: versions install cluster-guide troubleshooting
  Windows: faq
  proxy: cluster-guide troubleshooting for-admins
  own prompt: tutorial-own-data data how-to/own-data
  submit from laptop: cluster-guide
  SSH: cluster-guide
  Singularity: images cluster-guide how-to/offline-cluster
  Docker instead of Apptainer: images install
  interrupted download: troubleshooting data
  leaderboard: reports
  stop an experiment: faq
  how to cancel a run: faq
  pause experiment: faq
  why does my job wait in the queue: faq status
  where are the results stored: faq
  log files: faq
  quantized model: faq
  AWQ: faq
  LoRA adapter: faq
  gated model HF_TOKEN: faq
  docker login private registry: faq images
  image resolution: faq
  resize images: faq
  max_pixels: faq how-to/move-from-other-kits definitions
  reproducibility: faq
  random seed: faq definitions
  repeat a run: faq reports
  A/B test: faq comparing
  load test: faq
  Kubernetes: faq
  Mac laptop: faq
  bug report: faq troubleshooting
  truncated answers: faq
  request timed out: faq
  max_tokens: faq definitions
`.trim().split("\n").map((line) => {
  const at = line.lastIndexOf(": ");
  return [line.slice(0, at).trim(), line.slice(at + 2).split(" ").map((page) => `${page}.html`)];
});

const site = process.argv[2];
const workers = `${site}/assets/javascripts/workers/`;
const program = readdirSync(workers).find((name) => name.endsWith(".js"));
let hear;
let answered;
const world = vm.createContext({
  console, performance, setTimeout, URL,
  location: { href: `http://site/${program}` },
  importScripts: (...names) => names.forEach((name) => vm.runInContext(readFileSync(workers + name, "utf8"), world)),
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
for (const [question, pages] of QUESTIONS) {
  const { data } = await ask(2, question);
  const found = data.items.slice(0, 2).map(([best]) => best.location.split("#")[0]);
  if (!found.some((page) => pages.includes(page))) {
    failed += 1;
    console.error(`search for '${question}' finds none of ${pages.join(", ")} among the first two: ${found.join(", ")}`);
  }
}
process.exit(failed ? 1 : 0);
