/** A static bundle: the same client beside the API's answers as files; hpcbench/portal/static_export.py has the rule. */

interface Index {
  readonly experiment: string;
  /** When it was made, seconds since the epoch. */
  readonly created: number;
  /** Query parameters that tell answers apart. */
  readonly kept: readonly string[];
  /** What is not in it, in sentences. */
  readonly left_out: readonly string[];
}

let index: Index | null = null;

/** The bundle that this page belongs to; null: there is a portal. */
export function bundle(): Index | null {
  return index;
}

/** Whether this is a bundle. */
export function isBundle(): boolean {
  return index !== null;
}

/** Opens the bundle where the page says that it belongs to one.
 *
 * @throws Error - its index cannot be read
 */
export async function openBundle(): Promise<void> {
  const place = document.querySelector<HTMLMetaElement>('meta[name="hpcbench-bundle"]')?.content;
  if (place === undefined) return;
  const response = await fetch(place);
  if (!response.ok) throw new Error("The bundle is incomplete: its index is missing. Make it again with `hpcbench portal bundle`.");
  index = (await response.json()) as Index;
}

/** A text as part of a file's name. */
export function quoted(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return Array.from(bytes, (byte, place) => {
    const letter = String.fromCharCode(byte);
    const plain = /[A-Za-z0-9_-]/.test(letter) || (letter === "." && place > 0);
    return plain ? letter : `~${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}

/** The file that holds an answer.
 *
 * @param place - path behind `api/v1/` and its query, as sent to a portal
 * @param kept - query parameters that tell answers apart
 */
export function fileOf(place: string, kept: readonly string[]): string {
  const [path = "", query = ""] = place.split("?");
  const segments = path.split("/").filter(Boolean).map(decodeURIComponent);
  const given = [...new URLSearchParams(query)].filter(([name, value]) => kept.includes(name) && value !== "" && value !== "false");
  given.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const last = given.map(([name, value]) => `~~${quoted(name)}~~${quoted(value)}`).join("");
  const above = segments.at(-2);
  const ending = above === "images" ? ".webp" : above === "report" ? "" : ".json";
  return `data/${segments.map(quoted).join("/")}${last}${ending}`;
}
