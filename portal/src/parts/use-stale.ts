import { useLive } from "../app/live";

/** Since when what is shown of something that moves may be wrong, for `Stale`; null: it is true, or does not move. */
export function useStale(moves: boolean): number | null {
  const { state, since } = useLive();
  return moves && state === "stale" ? since : null;
}
