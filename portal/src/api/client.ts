import { noteDate } from "../clock";
import { bundle, nameOf, readAnswer } from "./bundle";
import type { Fault } from "./schema";
import type { Answer, AnyParams, Body, ChangeVerb, GetPath, Params, PathOf } from "./types";

/** A request that came back without what was asked for. */
export class FaultError extends Error {
  constructor(
    readonly status: number,
    readonly fault: Fault,
  ) {
    super(fault.error);
    this.name = "FaultError";
  }

  /** It is being computed, and how far it is may be known. */
  get underWay(): boolean {
    return this.status === 202;
  }

  /** No answer came: the tunnel or the portal is gone. */
  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** What the session does for requests. */
interface Guardian {
  /** The portal does not know us: whether it does now, so that it is worth asking again. */
  renew(): Promise<boolean>;
  /** The portal answered, or no answer came. */
  reached(answered: boolean): void;
}

let guardian: Guardian = { renew: () => Promise.resolve(false), reached: () => undefined };

/** Ties requests to the session. */
export function setGuardian(one: Guardian): void {
  guardian = one;
}

/** Address of something below the API, relative to the page: works under any prefix; in a bundle, its name. */
export function apiUrl(path: string): string {
  const rest = path.replace(/^\/?(api\/v1\/)?/, "");
  const made = bundle();
  return made ? nameOf(rest, made.kept) : `api/v1/${rest}`;
}

function queryString(query: AnyParams["query"]): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}).sort(([a], [b]) => (a < b ? -1 : 1))) {
    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (typeof one === "number" || typeof one === "boolean" || (typeof one === "string" && one !== "")) found.append(name, String(one));
    }
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** The address of a request, without types: for paths that are only known at run time. */
export function address(path: string, params: AnyParams): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(params.path?.[name] ?? "")));
  return apiUrl(filled + queryString(params.query));
}

/** The address of a request, relative to the page. */
export function url<P extends GetPath>(path: P, params: Params<P>): string {
  return address(path, params);
}

interface Kept {
  readonly etag: string;
  readonly body: unknown;
}

/** Answers with their ETags; the oldest go first. The browser keeps none: the API says `no-store`. */
const kept = new Map<string, Kept>();
const KEPT = 200;

function keep(place: string, etag: string | null, body: unknown): void {
  kept.delete(place);
  if (etag) kept.set(place, { etag, body });
  const oldest = kept.keys().next();
  if (kept.size > KEPT && !oldest.done) kept.delete(oldest.value);
}

/** Forgets all answers: another user may be signed in now. */
export function forgetAnswers(): void {
  kept.clear();
}

async function faultOf(response: Response): Promise<Fault> {
  const found: unknown = await response.json().catch(() => null);
  if (typeof found === "object" && found !== null && "error" in found) return found as Fault;
  return { error: `the portal answered ${response.status}`, remedy: "", code: "unexpected", id: "" };
}

const GONE: Fault = {
  error: "the portal cannot be reached",
  remedy: "Is the SSH tunnel open, and does `hpcbench portal` still run?",
  code: "unreachable",
  id: "",
};

function fail(status: number, fault: Fault): never {
  throw new FaultError(status, fault);
}

/** One request as it is, without the session's help. Proxies say 502 and 504 where no server is behind them.
 *
 * @throws FaultError - no answer came
 */
export async function reach(place: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(place, { credentials: "same-origin", redirect: "error", cache: "no-store", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    guardian.reached(false);
    return fail(0, GONE);
  }
  if ([502, 504].includes(response.status)) {
    guardian.reached(false);
    return fail(0, GONE);
  }
  noteDate(response.headers.get("Date"));
  guardian.reached(true);
  return response;
}

/** A request that is sent once more where the session could be renewed. */
async function request(place: string, init: RequestInit): Promise<Response> {
  const response = await reach(place, init);
  return response.status === 401 && (await guardian.renew()) ? reach(place, init) : response;
}

/** GET, by address.
 *
 * @throws FaultError - it was refused, or no answer came
 */
export async function fetchJson(place: string, signal?: AbortSignal): Promise<unknown> {
  if (bundle()) return fetchAnswer(place);
  const known = kept.get(place);
  const response = await request(place, { headers: known ? { "If-None-Match": known.etag } : {}, signal: signal ?? null });
  if (response.status === 304 && known) {
    keep(place, known.etag, known.body);
    return known.body;
  }
  // 202: it is being made, and the body says how far it is.
  if (!response.ok || response.status === 202) return fail(response.status, await faultOf(response));
  const body: unknown = response.status === 204 ? null : await response.json();
  keep(place, response.headers.get("ETag"), body);
  return body;
}

async function fetchAnswer(name: string): Promise<unknown> {
  const found = await readAnswer(name);
  if (found) return JSON.parse(new TextDecoder().decode(found)) as unknown;
  return fail(404, { error: "this is not part of the bundle", remedy: "", code: "not_in_bundle", id: "" });
}

/** GET.
 *
 * @throws FaultError - it was refused, or no answer came
 */
export async function ask<P extends GetPath>(path: P, params: Params<P>, signal?: AbortSignal): Promise<Answer<P>> {
  return (await fetchJson(address(path, params), signal)) as Answer<P>;
}

/** PUT, POST or DELETE; sent again only where it was refused for want of a session.
 *
 * @throws FaultError - it was refused, or no answer came
 */
export async function send<V extends ChangeVerb, P extends PathOf<V>>(
  verb: V,
  path: P,
  params: Params<P, V>,
  body?: Body<P, V>,
  headers?: Readonly<Record<string, string>>,
): Promise<Answer<P, V>> {
  const response = await request(address(path, params), {
    method: verb.toUpperCase(),
    headers: { "X-Hpcbench": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
    body: body === undefined ? null : JSON.stringify(body),
  });
  if (!response.ok) return fail(response.status, await faultOf(response));
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as Answer<P, V>;
}

/** POST whose body or answer is not JSON: a document, a picture, a stream.
 *
 * @throws FaultError - it was refused, or no answer came
 */
export async function post(path: string, params: AnyParams, body: BodyInit, type: string, signal?: AbortSignal): Promise<Response> {
  const headers = { "X-Hpcbench": "1", "Content-Type": type };
  const response = await request(address(path, params), { method: "POST", headers, body, signal: signal ?? null });
  return response.ok ? response : fail(response.status, await faultOf(response));
}
