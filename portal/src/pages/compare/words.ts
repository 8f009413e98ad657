/** Two short texts by words: what both have, what only one has. */

import type { Word } from "../../api/schema";

/** Words of a text at most; the rest is shown as it is. */
const MOST = 400;

/** The stretches from a reference to an answer: the longest common words stay. */
export function wordDiff(reference: string, answer: string): Word[] {
  const [one, restOne] = words(reference);
  const [other, restOther] = words(answer);
  const lengths = common(one, other);
  const found: Word[] = [];
  let i = 0;
  let j = 0;
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      push(found, "same", one[i++]);
      j += 1;
    } else if (j >= other.length || (i < one.length && at(lengths, i + 1, j) >= at(lengths, i, j + 1))) {
      push(found, "lost", one[i++]);
    } else {
      push(found, "added", other[j++]);
    }
  }
  if (restOne) push(found, "lost", restOne);
  if (restOther) push(found, "added", restOther);
  return found;
}

/** Longest common words of what is left of both from each place on. */
function common(one: readonly string[], other: readonly string[]): readonly (readonly number[])[] {
  const table = Array.from({ length: one.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      const row = table[i];
      if (row) row[j] = one[i] === other[j] ? at(table, i + 1, j + 1) + 1 : Math.max(at(table, i + 1, j), at(table, i, j + 1));
    }
  }
  return table;
}

function at(table: readonly (readonly number[])[], i: number, j: number): number {
  return table[i]?.[j] ?? 0;
}

function words(text: string): readonly [readonly string[], string] {
  const all = text.split(/\s+/).filter(Boolean);
  return [all.slice(0, MOST), all.slice(MOST).join(" ")];
}

/** Neighbours of one kind become one stretch. */
function push(found: Word[], kind: Word["kind"], text = ""): void {
  const last = found.at(-1);
  if (last?.kind === kind) found[found.length - 1] = { kind, text: `${last.text} ${text}` };
  else found.push({ kind, text });
}
