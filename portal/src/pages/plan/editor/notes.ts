/** The server's problems as places in a text that may have changed since. */
import type { Note } from "../../../api/schema";

export interface NotePlace {
  readonly from: number;
  readonly to: number;
}

const TOKEN = /^(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,[\]{}:#]+(?::[^\s,[\]{}#]+)*)/;

/** Begin of each line. */
export function lineStarts(text: string): readonly number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

/** From a problem's line and column to the end of the word there. */
export function placeOf(text: string, starts: readonly number[], note: Pick<Note, "line" | "column" | "end_line" | "end_column">): NotePlace {
  const row = Math.min(Math.max(note.line, 1), starts.length) - 1;
  const begin = starts[row] ?? 0;
  const end = (starts[row + 1] ?? text.length + 1) - 1;
  // Columns count characters as Python does, offsets as JavaScript does.
  const line = text.slice(begin, end);
  const from = Math.min(begin + unitsIn(line, note.column - 1), end);
  const token = TOKEN.exec(text.slice(from, end))?.[0].length ?? 0;
  const to = Math.min(Math.max(from + token, from + 1), text.length);
  // At the end of a line there is nothing to mark: its last character is.
  return from >= to ? { from: Math.max(0, to - 1), to } : { from, to };
}

function unitsIn(line: string, characters: number): number {
  let units = 0;
  let left = characters;
  for (const sign of line) {
    if (left <= 0) break;
    units += sign.length;
    left -= 1;
  }
  return units;
}

/** What was meant instead, if the problem says so and the text still has what is wrong. */
export function meant(note: Pick<Note, "message" | "remedy">, written: string): string | null {
  const said = /did you mean '([^']+)'/.exec(`${note.message} ${note.remedy}`)?.[1];
  const wrong = /'([^']+)'/.exec(note.message)?.[1];
  const bare = written.replace(/^["']|["']$/g, "");
  return said !== undefined && wrong === bare ? said : null;
}
