/** What the browser keeps for us, under our own name; nothing is kept where it may not be. */

const PREFIX = "hpcbench.";

/** A value that was kept; `fallback` where there is none, or where it cannot be read. */
export function kept<T>(name: string, fallback: T): T {
  try {
    // eslint-disable-next-line no-restricted-globals -- this is the place for it
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

/** Keeps a value; null forgets it. */
export function keep(name: string, value: unknown): void {
  try {
    // eslint-disable-next-line no-restricted-globals -- this is the place for it
    if (value === null) localStorage.removeItem(PREFIX + name);
    // eslint-disable-next-line no-restricted-globals -- this is the place for it
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is off or full: the page works without.
  }
}
