/** The Markdown of reports, as far as reports use it: into pieces that are drawn as elements, never as HTML. Pure. */

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "strong"; readonly inner: readonly Inline[] };

export type Block =
  | { readonly kind: "paragraph"; readonly inner: readonly Inline[] }
  | { readonly kind: "list"; readonly items: readonly (readonly Inline[])[] }
  | { readonly kind: "table"; readonly heads: readonly (readonly Inline[])[]; readonly ends: readonly boolean[]; readonly rows: readonly (readonly (readonly Inline[])[])[] }
  | { readonly kind: "code"; readonly text: string };

/** References to characters that reports write; any other stays as it is. */
const CHARACTERS: Readonly<Record<string, string>> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&#64;": "@" };

/** What is more than itself: an escaped sign, an end of code, an end of strong text, a character by its name. */
const MARK = /\\[^a-zA-Z0-9\s]|`+|\*\*|&(?:amp|lt|gt|#64);/g;

interface Mark {
  readonly text: string;
  readonly from: number;
}

/** Text with its marks, whatever it contains; in one pass. */
export function inlines(text: string): readonly Inline[] {
  const marks = [...text.matchAll(MARK)].map((match): Mark => ({ text: match[0], from: match.index }));
  const closing = closings(marks);
  const whole: Inline[] = [];
  let strong: Inline[] | null = null;
  let at = 0;
  for (let place = 0; place < marks.length; place += 1) {
    const mark = marks[place];
    if (!mark) break;
    add(strong ?? whole, text.slice(at, mark.from));
    at = mark.from + mark.text.length;
    const end = marks[closing[place] ?? -1];
    if (mark.text === "**") {
      if (strong?.length) whole.push({ kind: "strong", inner: strong });
      strong = strong ? null : [];
    } else if (end) {
      (strong ?? whole).push({ kind: "code", text: text.slice(at, end.from) });
      at = end.from + end.text.length;
      place = closing[place] ?? place;
    } else {
      add(strong ?? whole, mark.text.startsWith("\\") ? mark.text.slice(1) : (CHARACTERS[mark.text] ?? mark.text));
    }
  }
  add(strong ?? whole, text.slice(at));
  // Strong text without an end is none.
  if (strong) for (const one of [{ kind: "text", text: "**" } as const, ...strong]) if (one.kind === "text") add(whole, one.text); else whole.push(one);
  return whole;
}

/** Where code that begins at a mark ends: at the next run of as many backticks. */
function closings(marks: readonly Mark[]): readonly (number | undefined)[] {
  const next = new Map<string, number>();
  const found: (number | undefined)[] = [];
  for (let place = marks.length - 1; place >= 0; place -= 1) {
    const { text } = marks[place] as Mark;
    if (!text.startsWith("`")) continue;
    found[place] = next.get(text);
    next.set(text, place);
  }
  return found;
}

/** Adds text, to the text before it where there is some. */
function add(to: Inline[], text: string): void {
  if (text === "") return;
  const last = to.at(-1);
  if (last?.kind === "text") to[to.length - 1] = { kind: "text", text: last.text + text };
  else to.push({ kind: "text", text });
}

/** A block of a report's text. */
export function blockOf(text: string): Block {
  const lines = text.split("\n");
  const [first = "", rule = ""] = lines;
  if (/^`{3,}$/.test(first)) return { kind: "code", text: lines.slice(1, lines.at(-1) === first ? -1 : undefined).join("\n") };
  if (first.startsWith("|") && /^\|[-:| ]+\|$/.test(rule)) {
    const ends = cells(rule).map((cell) => cell.trim().endsWith(":"));
    const [heads = [], , ...rows] = lines.map((line) => cells(line).map((cell) => inlines(cell.trim())));
    return { kind: "table", heads, ends, rows };
  }
  if (lines.every((line) => /^\s*- /.test(line))) return { kind: "list", items: lines.map((line) => inlines(line.replace(/^\s*- /, ""))) };
  return { kind: "paragraph", inner: inlines(lines.join(" ")) };
}

/** Cells of a table's line; a stroke after a backslash is none of their edges. */
function cells(line: string): readonly string[] {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.match(/(?:\\.|[^\\|])+|(?<=\|)(?=\|)/g) ?? [];
}
