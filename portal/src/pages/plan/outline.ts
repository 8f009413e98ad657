/** The sections of a definition, to jump to. */
import { tokensOf } from "./editor/yaml-place";

export interface Section {
  readonly title: string;
  /** From 1. */
  readonly line: number;
  readonly depth: 0 | 1;
}

const MOST = 500;

/** Keys at the top, and the entries of lists below them by their names. */
export function outlineOf(text: string): readonly Section[] {
  const found: Section[] = [];
  let item: number | null = null;
  for (const [row, line] of text.split("\n").entries()) {
    if (found.length >= MOST) break;
    if (/^\s*(#|$)/.test(line)) continue;
    const tokens = tokensOf(line);
    const [first] = tokens;
    if (first?.kind === "key" && first.column === 0) {
      found.push({ title: first.name, line: row + 1, depth: 0 });
      item = null;
    } else if (first?.kind === "item" && found.length > 0 && (item === null || first.column === item)) {
      item = first.column;
      found.push({ title: entryTitle(text, row, line), line: row + 1, depth: 1 });
    }
  }
  return found;
}

/** What a definition's text names it; "" without a name. */
export function nameIn(text: string): string {
  for (const line of text.split("\n")) {
    const [first] = tokensOf(line);
    if (first?.kind === "key" && first.column === 0 && first.name === "name") return shortened(line.slice(first.end));
  }
  return "";
}

function entryTitle(text: string, row: number, line: string): string {
  const lines = text.split("\n").slice(row, row + 12);
  const key = tokensOf(line).find((token) => token.kind === "key");
  if (!key) return shortened(line.replace(/^\s*-\s*/, ""));
  for (const one of lines) {
    const named = tokensOf(one).find((token) => token.kind === "key" && token.column === key.column && ["name", "plugin", "ml_task"].includes(token.name));
    if (one !== line && tokensOf(one).some((token) => token.kind === "item" && token.column < key.column)) break;
    if (named) return shortened(one.slice(named.end)) || key.name;
  }
  return key.name;
}

function shortened(text: string): string {
  const bare = text.replace(/\s+#.*$/, "").trim().replace(/^["']|["']$/g, "");
  return bare.length > 60 ? `${bare.slice(0, 59)}…` : bare;
}
