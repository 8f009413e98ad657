/** What a log viewer holds of a log: stretches that touch, oldest first. Pure; offsets in bytes. */

export type Level = "error" | "warning" | "";

export interface Line {
  /** Where it begins: its name in links. */
  readonly at: number;
  readonly text: string;
  readonly level: Level;
  /** Whether it is a further piece of the line before it. */
  readonly continued?: boolean;
}

/** A stretch of a log as the server read or searched it, at ends of lines. */
export interface Stretch {
  readonly begin: number;
  readonly end: number;
  readonly lines: readonly Line[];
}

export interface LogBuffer {
  readonly stretches: readonly Stretch[];
  /** Size of the log when last asked, bytes. */
  readonly size: number;
  /** Number of the first line; null: not known, or lines between are left out. */
  readonly first: number | null;
}

/** An answer of the server, as far as a buffer wants it. */
export interface Answer extends Stretch {
  readonly size: number;
  readonly first?: number | null | undefined;
}

/** Lines kept; beyond it the oldest stretches go (the newest, when reading backwards). */
export const MOST_LINES = 50_000;

export const EMPTY: LogBuffer = { stretches: [], size: 0, first: null };

export function beginOf(buffer: LogBuffer): number {
  return buffer.stretches[0]?.begin ?? 0;
}

export function endOf(buffer: LogBuffer): number {
  return buffer.stretches.at(-1)?.end ?? 0;
}

export function linesOf(buffer: LogBuffer): readonly Line[] {
  const only = buffer.stretches[0];
  if (only && buffer.stretches.length === 1) return only.lines;
  return buffer.stretches.flatMap((one) => one.lines);
}

/** Number of each line; pieces of one line have the same. */
export function numbersOf(lines: readonly Line[], first: number): number[] {
  let number = first;
  return lines.map((line, at) => (number += at > 0 && !line.continued ? 1 : 0));
}

/** A buffer that holds one answer alone. */
export function fresh(answer: Answer): LogBuffer {
  return { stretches: [cut(answer)], size: answer.size, first: answer.first ?? null };
}

/** The buffer with what came after its end; an answer that does not touch it, or a log that shrank, starts again. */
export function appended(buffer: LogBuffer, answer: Answer, most = MOST_LINES): LogBuffer {
  const end = endOf(buffer);
  if (buffer.stretches.length === 0 || answer.begin !== end || answer.size < end) return fresh(answer);
  if (answer.end === end) return answer.size === buffer.size ? buffer : { ...buffer, size: answer.size };
  const stretches = [...buffer.stretches, cut(answer)];
  let { first } = buffer;
  let count = countOf(stretches);
  while (count > most && stretches.length > 1) {
    const gone = stretches.shift()?.lines ?? [];
    count -= gone.length;
    first = first === null ? null : (numbersOf([...gone, ...(stretches[0]?.lines.slice(0, 1) ?? [])], first).at(-1) ?? first);
  }
  return { stretches, size: answer.size, first };
}

/** The buffer with what stood before its begin; the same one where the answer does not touch it. */
export function prepended(buffer: LogBuffer, answer: Answer, most = MOST_LINES): LogBuffer {
  if (answer.end !== beginOf(buffer) || answer.begin === answer.end) return buffer;
  const stretches = [cut(answer), ...buffer.stretches];
  let count = countOf(stretches);
  while (count > most && stretches.length > 1) count -= stretches.pop()?.lines.length ?? 0;
  const numbered = answer.lines.length > 0 || buffer.first === null;
  return { stretches, size: answer.size, first: numbered ? (answer.first ?? null) : buffer.first };
}

/** Whether the log continues behind what is held. */
export function hasLater(buffer: LogBuffer): boolean {
  return endOf(buffer) < buffer.size;
}

/** Index of the line that begins at an offset, or of the first one behind it; -1: there is none. */
export function indexAt(lines: readonly Line[], at: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lines[middle]?.at ?? Infinity) < at) low = middle + 1;
    else high = middle;
  }
  return low < lines.length ? low : -1;
}

/** Offsets of lines that hold the words, whatever their case. */
export function found(lines: readonly Line[], words: string): number[] {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [];
  return lines.filter((line) => line.text.toLowerCase().includes(wanted)).map((line) => line.at);
}

/** Offsets of lines that begin an error: of a run of such lines, with indented ones between (a traceback), the first. */
export function errorsOf(lines: readonly Line[]): number[] {
  const begins: number[] = [];
  let within = false;
  for (const line of lines) {
    if (line.level === "error") {
      if (!within) begins.push(line.at);
      within = true;
    } else if (!/^\s/.test(line.text)) within = false;
  }
  return begins;
}

/** The offset that comes next, going round; null: there is none. */
export function next(offsets: readonly number[], from: number, step: 1 | -1): number | null {
  if (step === 1) return offsets.find((one) => one > from) ?? offsets[0] ?? null;
  return offsets.findLast((one) => one < from) ?? offsets.at(-1) ?? null;
}

/** Bytes within which lines that look like errors, seen from afar, are taken for one error. */
const CLOSE = 4096;

/** Errors of the lines held, and those the server saw elsewhere in the log; in order. */
export function allErrors(buffer: LogBuffer, held: readonly number[], seen: readonly number[]): number[] {
  const begin = beginOf(buffer);
  const end = endOf(buffer);
  const apart = seen.filter((one, place) => one - (seen[place - 1] ?? -Infinity) > CLOSE);
  return [...apart.filter((one) => one < begin), ...held, ...apart.filter((one) => one >= end)];
}

/** A line cut where the words stand in it: every second part is a find. */
export function marked(text: string, words: string): string[] {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [text];
  const lower = text.toLowerCase();
  // A letter may change its length with its case: then places do not fit, and nothing is marked.
  if (lower.length !== text.length) return [text];
  const parts: string[] = [];
  let at = 0;
  for (let hit = lower.indexOf(wanted); hit >= 0; hit = lower.indexOf(wanted, at)) {
    parts.push(text.slice(at, hit), text.slice(hit, hit + wanted.length));
    at = hit + wanted.length;
  }
  parts.push(text.slice(at));
  return parts;
}

function countOf(stretches: readonly Stretch[]): number {
  return stretches.reduce((sum, one) => sum + one.lines.length, 0);
}

function cut(answer: Answer): Stretch {
  return { begin: answer.begin, end: answer.end, lines: answer.lines };
}
