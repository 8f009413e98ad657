/** Reads a plan's text for a form, and changes single values of it: comments and everything else stay. */
import { type Document, isMap, isNode, isScalar, isSeq, type Node, type Pair, parseDocument, stringify, type YAMLMap, type YAMLSeq } from "yaml";

export type Path = readonly (string | number)[];
export type Value = string | number | readonly string[] | null;

/** A matrix, or a run task written out in the plan. */
export interface Part {
  readonly kind: "matrix" | "task";
  readonly path: Path;
  readonly title: string;
}

export interface Plan {
  readonly parts: readonly Part[];
  /** The text is not valid YAML. */
  readonly broken: boolean;
  /** A value; undefined: there is none. */
  readonly at: (path: Path) => unknown;
}

/** Keys of a plan, a matrix and a run task in the order in which a form adds them. */
const ORDER = ["schema_version", "name", "description", "parallelism", "max_gpu_hours", "ml_task", "model", "models", "dataset", "datasets", "prompt", "prompts", "limit"];

/** A plan's text as a form needs it. */
export function planOf(text: string): Plan {
  const parsed = parseDocument(text);
  const data = dataOf(parsed);
  if (data === undefined || (parsed.contents !== null && !isMap(parsed.contents))) return { parts: [], broken: true, at: () => undefined };
  const at = (path: Path) => path.reduce<unknown>((found, key) => (found as Record<string | number, unknown> | null | undefined)?.[key], data);
  const parts: Part[] = [];
  const add = (kind: Part["kind"], key: string, title: (entry: object, place: number) => string) => {
    const entries = at([key]);
    if (!Array.isArray(entries)) return;
    for (const [place, entry] of (entries as unknown[]).entries()) {
      // An alias (`- *one`) has no text of its own to change.
      if (typeof entry === "object" && entry !== null && isMap(parsed.getIn([key, place], true))) parts.push({ kind, path: [key, place], title: title(entry, place) });
    }
  };
  add("matrix", "matrix", (_, place) => `Matrix ${place + 1}`);
  add("task", "run_tasks", (entry, place) => `Run task ${"name" in entry && typeof entry.name === "string" ? entry.name : place + 1}`);
  return { parts, broken: false, at };
}

/** The values of a text, those of aliases (`*name`) included; undefined: it is not valid, or grows without measure. */
function dataOf(parsed: Document): unknown {
  if (parsed.errors.length > 0) return undefined;
  try {
    return parsed.toJS() as unknown;
  } catch {
    return undefined;
  }
}

/** Names in a value: of a list, or one. */
export function namesIn(value: unknown): readonly string[] {
  if (typeof value === "string") return [value];
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : [];
}

/** The text with another value at a path.
 *
 * @param path - a key of the plan, or of an entry of one of its lists
 * @param value - null: without this key
 */
export function withValue(text: string, path: Path, value: Value): string {
  const edited = inPlace(text, path, value);
  if (edited !== null && isOnlyChange(text, edited, path, value)) return edited;
  const whole = parseDocument(text); // rewritten as a whole: comments stay, spaces may not
  set(whole, path, value);
  // Without a value that others name by its anchor, the text would not be valid.
  return dataOf(whole) === undefined ? text : whole.toString({ lineWidth: 0 });
}

function set(whole: Document, path: Path, value: Value): void {
  if (value === null) {
    whole.deleteIn(path);
    return;
  }
  const before = whole.getIn(path, true);
  const anchor = isScalar(before) || isSeq(before) ? before.anchor : undefined;
  const made = whole.createNode(value, { flow: true });
  if (anchor !== undefined && (isScalar(made) || isSeq(made))) made.anchor = anchor;
  whole.setIn(path, made);
}

/** The text with only the characters of this value changed; null: that is not possible. */
function inPlace(text: string, path: Path, value: Value): string | null {
  const parsed = parseDocument(text);
  const parent = path.length === 1 ? parsed.contents : parsed.getIn(path.slice(0, -1), true);
  if (!isMap(parent)) return null;
  const map = parent as YAMLMap<Node, Node | null>;
  const key = path[path.length - 1] as string;
  const pair = map.items.find((one) => isScalar(one.key) && one.key.value === key);
  if (value === null) return pair ? without(text, map, pair) : text;
  if (!pair) return inserted(text, map, key, value);
  const node = pair.value;
  if (!node?.range || (isScalar(node) && node.source === "")) return null;
  const [start, end] = node.range;
  if (isSeq(node) && !node.flow && Array.isArray(value)) return value.length > 0 ? withItems(text, node, value as readonly string[]) : null;
  return text.slice(0, start) + flow(value) + text.slice(end);
}

/** A list with an entry a line: lines of entries that stay are as they were. */
function withItems(text: string, list: YAMLSeq, wanted: readonly string[]): string | null {
  const [start = 0, last = 0] = list.range ?? [];
  const nodes = list.items.filter(isNode);
  const begins = nodes.map((one) => lineStart(text, one.range?.[0] ?? 0));
  const end = lineEnd(text, last);
  const indent = start - lineStart(text, start);
  const lines = new Map(nodes.map((one, place) => [isScalar(one) ? String(one.value) : "", text.slice(begins[place], begins[place + 1] ?? end)]));
  const written = wanted.map((one) => ended(lines.get(one) ?? `${" ".repeat(indent)}- ${flow(one)}`));
  return text.slice(0, begins[0] ?? start) + written.join("") + text.slice(end);
}

function without(text: string, map: YAMLMap, pair: Pair<Node, Node | null>): string | null {
  const begin = lineStart(text, pair.key.range?.[0] ?? 0);
  if (map.flow || text.slice(begin, pair.key.range?.[0]).trim() !== "") return null;
  return text.slice(0, begin) + text.slice(lineEnd(text, pair.value?.range?.[1] ?? pair.key.range?.[1] ?? begin));
}

/** A new line below the keys that come before it in `ORDER`. */
function inserted(text: string, map: YAMLMap<Node, Node | null>, key: string, value: Value): string | null {
  if (map.flow) return null;
  const rank = ORDER.indexOf(key);
  const ranked = (one: Pair<Node, Node | null>) => (isScalar(one.key) ? ORDER.indexOf(String(one.key.value)) : -1);
  const before = map.items.findLast((one) => ranked(one) >= 0 && ranked(one) < rank) ?? map.items[0];
  const start = before?.key.range?.[0];
  if (before === undefined || start === undefined) return null;
  const at = lineEnd(text, before.value?.range?.[1] ?? start);
  const head = ended(text.slice(0, at));
  return `${head}${" ".repeat(start - lineStart(text, start))}${key}: ${flow(value)}\n${text.slice(at)}`;
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

/** Behind the line break that ends the line; a value of several lines may end with it. */
function lineEnd(text: string, at: number): number {
  if (at > 0 && text[at - 1] === "\n") return at;
  const found = text.indexOf("\n", at);
  return found < 0 ? text.length : found + 1;
}

function ended(text: string): string {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

function flow(value: Value): string {
  return stringify(value, { collectionStyle: "flow", flowCollectionPadding: false, lineWidth: 0 }).trimEnd();
}

function isOnlyChange(before: string, after: string, path: Path, value: Value): boolean {
  const wanted = parseDocument(before);
  set(wanted, path, value);
  const made = dataOf(parseDocument(after));
  return made !== undefined && sorted(made) === sorted(dataOf(wanted));
}

/** As JSON; the order of keys does not count. */
function sorted(data: unknown): string {
  return JSON.stringify(data, (_, value: unknown) => (typeof value === "object" && value !== null && !Array.isArray(value) ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))) : value));
}
