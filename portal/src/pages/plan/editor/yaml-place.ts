/** The cursor's place in a definition's structure, from its text alone, which may be half written. */

/** Keys and indexes from the top. */
export type Path = readonly (string | number)[];

export interface YamlPlace {
  /** The map or list that the cursor is in, or the key whose value it is at. */
  readonly path: Path;
  /** Whether a key, or a value, is written here; in a list an entry can become either. */
  readonly at: "key" | "value" | "entry";
  /** The part before the cursor of the word that is being written. */
  readonly word: string;
  /** Keys that the map has already. */
  readonly used: readonly string[];
}

interface Token {
  readonly kind: "item" | "key";
  readonly column: number;
  readonly name: string;
  /** Column behind the colon. */
  readonly end: number;
}

const KEY = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#[\]{},&*!|>'"%@`-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?=\s|$)/;

function unquoted(text: string): string {
  return /^(["']).*\1$/.test(text) ? text.slice(1, -1) : text;
}

/** Dashes and the key that a line begins with. */
export function tokensOf(line: string): readonly Token[] {
  const found: Token[] = [];
  let column = line.length - line.trimStart().length;
  for (;;) {
    const rest = line.slice(column);
    const dash = /^-(\s+|$)/.exec(rest);
    if (dash) {
      found.push({ kind: "item", column, name: "", end: column + dash[0].length });
      column += dash[0].length;
      continue;
    }
    const key = KEY.exec(rest);
    if (key?.[1] !== undefined) found.push({ kind: "key", column, name: unquoted(key[1]), end: column + key[0].length });
    return found;
  }
}

function silent(line: string): boolean {
  return /^\s*(#.*)?$/.test(line);
}

interface Inside {
  readonly path: (string | number)[];
  readonly at: YamlPlace["at"];
  readonly word: string;
  readonly used: string[];
}

/** What a value in one line, `{a: 1, b: [x, `, comes to at its end; null: it is no such value. */
function inFlow(text: string): Inside | null {
  interface Level {
    readonly map: boolean;
    index: number;
    key: string | null;
    used: string[];
  }
  const levels: Level[] = [];
  let word = "";
  let quote = "";
  for (const sign of text) {
    const top = levels.at(-1);
    if (quote) {
      if (sign === quote) quote = "";
      word += sign;
    } else if ((sign === '"' || sign === "'") && !word.trim()) {
      quote = sign;
      word += sign;
    } else if (sign === "{" || sign === "[") {
      levels.push({ map: sign === "{", index: 0, key: null, used: [] });
      word = "";
    } else if (sign === "}" || sign === "]") {
      levels.pop();
      word = "";
    } else if (sign === "," && top) {
      top.index += 1;
      top.key = null;
      word = "";
    } else if (sign === ":" && top?.map && top.key === null) {
      top.key = unquoted(word.trim());
      top.used.push(top.key);
      word = "";
    } else if (sign === "#" && /\s$/.test(word)) return null;
    else word += sign;
  }
  const top = levels.at(-1);
  if (!top) return null;
  const path = levels.map((level) => (level.map ? level.key : level.index)).filter((part) => part !== null);
  const at = top.map ? (top.key === null ? "key" : "value") : "value";
  return { path, at, word: word.trimStart(), used: at === "key" ? top.used : [] };
}

/** The way from the top to a column of a line; the caller gives the part of the line left of it. */
function wayTo(lines: readonly string[], row: number, start: number, own: readonly Token[]): (string | number)[] {
  const way: (string | number)[] = [];
  const here = { need: start, list: false };
  const step = (token: Token): void => {
    if (here.list && token.kind === "item" && token.column === here.need) {
      const last = way.at(-1);
      if (typeof last === "number") way[way.length - 1] = last + 1;
    } else if (token.column < here.need || (here.list && token.kind === "key" && token.column === here.need)) {
      way.push(token.kind === "key" ? token.name : 0);
      here.need = token.column;
      here.list = token.kind === "item";
    }
  };
  for (const token of [...own].reverse()) step(token);
  for (let line = row - 1; line >= 0 && (here.need > 0 || here.list); line -= 1) {
    const text = lines[line] ?? "";
    if (!silent(text)) for (const token of [...tokensOf(text)].reverse()) step(token);
  }
  return way.reverse();
}

/** Keys of the map that has a key at a column of a line. */
function siblings(lines: readonly string[], row: number, column: number): string[] {
  const found: string[] = [];
  const look = (line: number, down: boolean): boolean => {
    const text = lines[line] ?? "";
    if (silent(text)) return true;
    const tokens = tokensOf(text);
    const key = tokens.find((token) => token.kind === "key" && token.column === column);
    const starts = tokens.some((token) => token.kind === "item" && token.column < column);
    const first = text.length - text.trimStart().length;
    if (down && starts && first < column) return false;
    if (key) found.push(key.name);
    return first >= column;
  };
  for (let line = row - 1; line >= 0 && look(line, false); line -= 1);
  for (let line = row + 1; line < lines.length && look(line, true); line += 1);
  return found;
}

/** The cursor's place; null: in a comment. */
export function placeAt(lines: readonly string[], row: number, column: number): YamlPlace | null {
  const before = (lines[row] ?? "").slice(0, column);
  if (/^\s*#|\s#/.test(before.replace(/(^|[\s[{,:])(?:"[^"]*(?:"|$)|'[^']*(?:'|$))/g, "$1"))) return null;
  const tokens = tokensOf(before);
  const key = tokens.at(-1)?.kind === "key" ? tokens.at(-1) : undefined;
  const dashes = tokens.filter((token) => token.kind === "item");
  const begin = key ? key.end : (dashes.at(-1)?.end ?? before.length - before.trimStart().length);
  const rest = before.slice(begin);
  const flow = inFlow(rest);
  if (key) {
    const way = [...wayTo(lines, row, key.column, dashes), key.name];
    if (flow) return { ...flow, path: [...way, ...flow.path] };
    return { path: way, at: "value", word: rest.trimStart(), used: [] };
  }
  const way = wayTo(lines, row, begin, dashes);
  if (flow) return { ...flow, path: [...way, ...flow.path] };
  return { path: way, at: dashes.length > 0 ? "entry" : "key", word: rest, used: siblings(lines, row, begin) };
}

/** The path of what is written at a position: of the key under it, or of the value. */
export function pathUnder(lines: readonly string[], row: number, column: number): Path | null {
  const line = lines[row] ?? "";
  const over = tokensOf(line).find((token) => token.kind === "key" && column >= token.column && column < token.end);
  if (over) return [...wayTo(lines, row, over.column, tokensOf(line).filter((token) => token.kind === "item")), over.name];
  const word = /^[\w-]*/.exec(line.slice(column))?.[0] ?? "";
  const place = placeAt(lines, row, column + word.length);
  if (!place) return null;
  return place.at === "key" && place.word ? [...place.path, place.word.trim()] : place.path;
}
