// Everything that must hold before a commit: npm run check, or some of it: npm run check -- api sizes
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

/** Bytes, compressed as the server does it. */
const LIMITS = { "first page, JavaScript": 200_000, "first page, styles": 30_000, "chart, lazy": 400_000, "editor, lazy": 200_000 };

const own = join(process.cwd(), "..", ".venv", "bin", "python");
const python = process.env.PYTHON ?? (existsSync(own) ? own : "python3");
const made = mkdtempSync(join(tmpdir(), "hpcbench-portal-"));
/** `make client` compares it with the committed files. */
const BUILT = join("..", "build", "portal");

function run(title, command, ...given) {
  console.log(`· ${title}`);
  const { status } = spawnSync(command, given, { stdio: "inherit" });
  if (status !== 0) throw new Error(`${title}: failed`);
}

function api() {
  console.log("· types of the API");
  const description = join(made, "openapi.json");
  execFileSync(python, ["-m", "hpcbench.portal.openapi", "--out", description], { cwd: "..", stdio: "inherit" });
  const same = (one, other) => readFileSync(one, "utf-8") === readFileSync(other, "utf-8");
  if (!same(description, "openapi.json")) throw new Error("openapi.json is old: python -m hpcbench.portal.openapi --out portal/openapi.json");
  const kept = readFileSync("src/api/schema.d.ts", "utf-8");
  execFileSync("npm", ["run", "--silent", "types"], { stdio: ["ignore", "ignore", "inherit"] });
  if (readFileSync("src/api/schema.d.ts", "utf-8") !== kept) throw new Error("src/api/schema.d.ts was old; it is made anew now");
}

const packed = (name) => gzipSync(readFileSync(join(BUILT, "assets", name)), { level: 9 }).length;

/** What a chunk brings along: its static imports, and theirs. */
function withImports(names) {
  const found = new Set(names);
  for (const name of found) {
    const text = readFileSync(join(BUILT, "assets", name), "utf-8");
    for (const [, other] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) found.add(other);
  }
  return found;
}

function sizes() {
  console.log("· sizes");
  execFileSync("npx", ["vite", "build", "--outDir", BUILT, "--logLevel", "warn"], { stdio: "inherit" });
  const page = readFileSync(join(BUILT, "index.html"), "utf-8");
  if (/<script(?![^>]*\bsrc=)|<style|\son\w+=|https?:/.test(page)) throw new Error("index.html has something inline or from elsewhere");
  const named = [...page.matchAll(/(?:src|href)="\.\/assets\/([^"]+)"/g)].map(([, name]) => name);
  const files = readdirSync(join(BUILT, "assets"));
  const chunk = (name) => files.filter((file) => file.startsWith(`${name}-`) && file.endsWith(".js"));
  const first = withImports([...named.filter((name) => name.endsWith(".js")), ...chunk("experiments")]);
  const styles = [...named.filter((name) => name.endsWith(".css")), ...files.filter((file) => /^experiments-.*\.css$/.test(file))];
  const alone = (names) => [...withImports(names)].filter((name) => !first.has(name));
  const found = { "first page, JavaScript": first, "first page, styles": new Set(styles), "chart, lazy": alone(chunk("Drawing")), "editor, lazy": alone(chunk("CodeEditor")) };
  for (const [title, names] of Object.entries(found)) {
    const size = [...names].reduce((sum, name) => sum + packed(name), 0);
    console.log(`  ${title}: ${(size / 1000).toFixed(1)} of ${LIMITS[title] / 1000} kB`);
    if (size > LIMITS[title] || size === 0) throw new Error(`${title}: ${size === 0 ? "not found" : "too large"}`);
  }
}

const STEPS = {
  types: () => run("TypeScript", "npx", "tsc", "--noEmit"),
  lint: () => run("lint", "npm", "run", "--silent", "lint"),
  tests: () => run("tests", "npm", "run", "--silent", "test"),
  api,
  sizes,
};

try {
  const asked = process.argv.slice(2);
  const unknown = asked.filter((name) => !(name in STEPS));
  if (unknown.length > 0) throw new Error(`there is no step ${unknown.join(", ")}: ${Object.keys(STEPS).join(", ")}`);
  for (const [name, step] of Object.entries(STEPS)) if (asked.length === 0 || asked.includes(name)) step();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  rmSync(made, { recursive: true });
}
