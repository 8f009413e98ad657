import { useSyncExternalStore } from "react";
import { isBundle, openBundle } from "../api/bundle";
import { FaultError, fetchJson, forgetAnswers, reach, setGuardian } from "../api/client";
import type { Fault, Session } from "../api/schema";
import { now } from "../clock";

/** Who is signed in, and whether the portal can be reached. */
export interface SessionState {
  readonly phase: "opening" | "in" | "out" | "bundle" | "broken";
  /** The last one known. */
  readonly session: Session | null;
  /** Whether the portal answered last time. */
  readonly reachable: boolean;
  /** Since when it does not, seconds since the epoch. */
  readonly since: number | null;
  /** Why no user is signed in, as the page shows it. */
  readonly why: string | null;
}

const PLACE = "api/v1/session";
const LOCK = "hpcbench-session";
/** So long before its end a session is renewed, seconds. */
const EARLY = 120;
/** Milliseconds between tries to reach a portal that is gone; the last one holds on. */
const TRIES = [1000, 2000, 4000, 8000];

let state: SessionState = { phase: "opening", session: null, reachable: true, since: null, why: null };
const listeners = new Set<() => void>();
const back = new Set<() => void>();
let renewal: ReturnType<typeof setTimeout> | undefined;
let knocking: ReturnType<typeof setTimeout> | undefined;
let tried = 0;
let renewing: Promise<boolean> | null = null;

function change(part: Partial<SessionState>): void {
  state = { ...state, ...part };
  for (const listener of listeners) listener();
}

/** How things stand. */
export function sessionState(): SessionState {
  return state;
}

/** Call back when the portal can be reached again, or a user signed in. */
export function onBack(listener: () => void): () => void {
  back.add(listener);
  return () => back.delete(listener);
}

/** Call back on every change. */
export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** How things stand, in a component. */
export function useSession(): SessionState {
  return useSyncExternalStore(onSession, sessionState);
}

async function call(method: "GET" | "POST" | "DELETE", place = PLACE, body?: object): Promise<Session | null> {
  const headers: Record<string, string> = method === "GET" ? {} : { "X-Hpcbench": "1", "Content-Type": "application/json" };
  const response = await reach(place, { method, headers, body: body ? JSON.stringify(body) : null });
  if (response.ok) return response.status === 204 ? null : ((await response.json()) as Session);
  const fault = (await response.json().catch(() => null)) as Fault | null;
  throw new FaultError(response.status, fault ?? { error: `the portal answered ${response.status}`, remedy: "", code: "unexpected", id: "" });
}

function enter(session: Session): void {
  const before = state.phase;
  change({ phase: "in", session, why: null });
  clearTimeout(renewal);
  const wait = Math.max(5, session.expires - now() - EARLY);
  renewal = setTimeout(() => void renew(), wait * 1000);
  if (before === "out") for (const listener of back) listener();
}

function leave(why: string | null): void {
  clearTimeout(renewal);
  forgetAnswers();
  change({ phase: "out", why });
}

function alone<T>(act: () => Promise<T>): Promise<T> {
  return "locks" in navigator ? (navigator.locks.request(LOCK, act) as Promise<T>) : act();
}

async function renewAlone(): Promise<boolean> {
  try {
    // Another tab may have done it while this one waited for its turn: a used key ends the session.
    const now_ = await call("GET").catch((error: unknown) => {
      if (error instanceof FaultError && error.status === 401) return null;
      throw error;
    });
    const fresh = now_ !== null && now_.expires - now() > EARLY;
    const session = fresh ? now_ : await call("POST", `${PLACE}/refresh`);
    if (session) enter(session);
    return session !== null;
  } catch (error) {
    if (error instanceof FaultError && error.status === 401) leave(state.phase === "in" ? "The session has ended." : state.why);
    return false;
  }
}

/** Renews the session; one try at a time in all tabs.
 *
 * @returns whether there is a session now
 */
export function renew(): Promise<boolean> {
  if (isBundle()) return Promise.resolve(false);
  renewing ??= alone(renewAlone).finally(() => {
    renewing = null;
  });
  return renewing;
}

/** Signs in.
 *
 * @param given - a one-time code, or the whole link
 * @throws FaultError - the code is wrong or too old, or no answer came
 */
export async function signIn(given: string): Promise<void> {
  const code = codeIn(given) ?? given.trim();
  const session = await call("POST", PLACE, { code });
  forgetAnswers();
  if (session) enter(session);
}

/** Ends the session, in all tabs. */
export async function signOut(): Promise<void> {
  await call("DELETE");
  leave("You are signed out.");
}

/** The one-time code in a link; null: it has none. */
export function codeIn(text: string): string | null {
  return /#t=([\w.~-]+)/.exec(text)?.[1] ?? null;
}

/** Takes the code out of the address before anybody else sees it: it must not stay in the history. */
export function takeCode(): string | null {
  const code = codeIn(location.hash);
  if (code !== null) history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  return code;
}

function knock(): void {
  clearTimeout(knocking);
  const wait = TRIES[Math.min(tried, TRIES.length - 1)] ?? 8000;
  tried += 1;
  knocking = setTimeout(() => void look(), wait);
}

/** Asks whether the portal is there, and who is signed in. */
export async function look(): Promise<void> {
  try {
    const session = await call("GET");
    if (session) enter(session);
  } catch (error) {
    if (!(error instanceof FaultError) || error.unreachable) return;
    if (error.status === 401) await renew();
  }
}

function reached(answered: boolean): void {
  if (answered === state.reachable) {
    if (!answered) knock();
    return;
  }
  change({ reachable: answered, since: answered ? null : now() });
  if (!answered) { knock(); return; }
  tried = 0;
  clearTimeout(knocking);
  for (const listener of back) listener();
}

/** Opens a bundle, or signs in with the code of the address or the cookies there are; then continues by itself. */
export async function begin(code: string | null): Promise<void> {
  setGuardian({ renew, reached });
  try {
    await openBundle();
  } catch (error) {
    change({ phase: "broken", why: error instanceof Error ? error.message : null }); return;
  }
  if (isBundle()) { change({ phase: "bundle", session: (await fetchJson("session")) as Session }); return; }
  for (const event of ["online", "focus"]) window.addEventListener(event, () => state.reachable || void look());
  try {
    if (code !== null) { await signIn(code); return; }
  } catch (error) {
    if (error instanceof FaultError && !error.unreachable) change({ why: error.message });
  }
  await look();
  if (state.phase === "opening") change({ phase: "out" });
}
