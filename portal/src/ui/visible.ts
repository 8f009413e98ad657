/**
 * Characters that are invisible and that change what is seen, made visible: `⟨U+202E⟩`.
 *
 * Controls of direction or of terminals, and characters without width, let a text read otherwise than it is. Letters of Arabic or
 * Hebrew stay as they are, and so do joiners between letters or pictures that need them. The same rule as in
 * `hpcbench/visible.py`.
 */

const JOINED = String.raw`\u0590-\u1fff\u2c00-\ud7ff\uf900-\ufdff\ufe0f\u{1f000}-\u{1faff}\u2600-\u27bf\u2190-\u21ff`;

const HIDDEN = new RegExp(
  // eslint-disable-next-line no-misleading-character-class -- each sign alone is meant
  String.raw`[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]` +
    String.raw`|(?<![${JOINED}])[\u200c\u200d]|[\u200c\u200d](?![${JOINED}])`,
  "gu",
);

/** Whether a text has only printed ASCII: nearly all have. */
const PLAIN = /^[\t\n\r\x20-\x7e]*$/;

/** The text with what is hidden in it written out. */
export function visible(text: string): string {
  if (PLAIN.test(text)) return text;
  return text.replace(HIDDEN, (found) => `⟨U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** The same in all texts of plain data. */
export function visibleIn<T>(value: T): T {
  if (typeof value === "string") return visible(value) as T;
  if (Array.isArray(value)) return value.map(visibleIn) as T;
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, visibleIn(one)])) as T;
}
