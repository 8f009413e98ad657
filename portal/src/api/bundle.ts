/** A static bundle: the same client beside the API's answers in packs; hpcbench/portal/static_export.py has the rule. */

interface Index {
  readonly experiment: string;
  /** When it was made, seconds since the epoch. */
  readonly created: number;
  /** Query parameters that tell answers apart. */
  readonly kept: readonly string[];
  /** Number of files of names. */
  readonly names: number;
  /** What is not in it, in sentences. */
  readonly left_out: readonly string[];
}

/** Pack, first byte and number of bytes of an answer. */
type Place = readonly [string, number, number];

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

/** A text as a file's name. */
export function quoted(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return Array.from(bytes, (byte, place) => {
    const letter = String.fromCharCode(byte);
    const plain = /[A-Za-z0-9_-]/.test(letter) || (letter === "." && place > 0);
    return plain ? letter : `~${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}

/** Name of an answer, or the address of a report's file.
 *
 * @param place - path behind `api/v1/` and its query, as sent to a portal
 * @param kept - query parameters that tell answers apart
 */
export function nameOf(place: string, kept: readonly string[]): string {
  const [path = "", query = ""] = place.split("?");
  const segments = path.split("/").filter(Boolean).map(decodeURIComponent);
  if (segments.at(-2) === "report") return `report/${quoted(segments.at(-1) ?? "")}`;
  const given = [...new URLSearchParams(query)].filter(([name, value]) => kept.includes(name) && value !== "" && value !== "false");
  given.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const asked = given.map(([name, value]) => `${name}=${value}`).join("&");
  return segments.join("/") + (asked ? `?${asked}` : "");
}

/** CRC-32 of a text's UTF-8, as in zip files. */
export function crc32(text: string): number {
  let crc = -1;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** Files that were read last, the oldest first; also while they come. */
const files = new Map<string, Promise<ArrayBuffer | null>>();
const FILES = 24;

function file(name: string): Promise<ArrayBuffer | null> {
  const found = files.get(name) ?? load(name);
  files.delete(name);
  files.set(name, found);
  const oldest = files.keys().next();
  if (files.size > FILES && !oldest.done) files.delete(oldest.value);
  return found;
}

async function load(name: string): Promise<ArrayBuffer | null> {
  try {
    const response = await fetch(`data/${name}`);
    if (response.ok) return await response.arrayBuffer();
  } catch {
    // The network failed: the next reader tries again.
  }
  files.delete(name);
  return null;
}

/** Files of names, parsed. */
const parsed = new WeakMap<ArrayBuffer, Readonly<Record<string, Place>>>();

function placesIn(names: ArrayBuffer): Readonly<Record<string, Place>> {
  const known = parsed.get(names) ?? (JSON.parse(new TextDecoder().decode(names)) as Readonly<Record<string, Place>>);
  parsed.set(names, known);
  return known;
}

/** The bytes of an answer; null: the bundle does not have it. */
export async function readAnswer(name: string): Promise<Uint8Array<ArrayBuffer> | null> {
  const names = await file(`names/${crc32(name) % (index?.names ?? 1)}.json`);
  const place = names && placesIn(names)[name];
  const pack = place ? await file(`packs/${place[0]}`) : null;
  return pack && place ? new Uint8Array(pack, place[1], place[2]) : null;
}

/** Addresses of images that were shown last, the oldest first. */
const images = new Map<string, Promise<string>>();
const IMAGES = 400;

/** An address for an image element: in a bundle the image comes out of its pack first. */
export function imageSource(place: string): string | Promise<string> {
  if (!index) return place;
  const found = images.get(place) ?? fromPack(place);
  images.delete(place);
  images.set(place, found);
  const oldest = images.entries().next();
  if (images.size > IMAGES && !oldest.done) {
    const [name, address] = oldest.value;
    images.delete(name);
    void address.then((source) => URL.revokeObjectURL(source), () => undefined);
  }
  return found;
}

async function fromPack(place: string): Promise<string> {
  const bytes = await readAnswer(place);
  if (bytes) return URL.createObjectURL(new Blob([bytes]));
  images.delete(place);
  throw new Error("this image is not part of the bundle");
}
