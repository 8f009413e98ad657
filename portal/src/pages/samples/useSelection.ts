import { useEffect, useRef, useState } from "react";

import type { SampleDetail } from "../../api/schema";
import { numberOf } from "./chunks";
import type { Samples } from "./useSamples";

export interface Selection {
  /** Number of the sample shown, among those that pass the filter; undefined: not known, or it does not pass. */
  readonly number: number | undefined;
  /** Goes some samples on. */
  readonly step: (by: 1 | -1) => void;
  /** Shows the sample of a number. */
  readonly open: (number: number) => void;
}

/** Which sample of the list is shown; the list follows it, and keeps it where it is while answers come in. */
export function useSelection(
  samples: Samples,
  place: number | undefined,
  detail: SampleDetail | undefined,
  onPlace: (place: number) => void,
): Selection {
  const { window } = samples;
  const own = detail?.row.place === place ? detail : undefined;
  const total = samples.first?.total ?? 0;
  const listed = samples.old || place === undefined ? undefined : numberOf(samples.chunks, (row) => row.place === place);
  const number = listed ?? rankOf(samples, own);
  const last = useRef<{ place: number; number: number } | null>(null);
  useEffect(() => {
    if (number === undefined || place === undefined || total === 0 || !window.ready) return;
    const before = last.current;
    last.current = { place, number };
    if (before?.place !== place) window.reveal(number, before === null ? "middle" : "least");
    else if (before.number !== number) window.shift(number - before.number);
  }, [place, number, total, window]);
  // A row far away is not here yet when it is asked for (End): it is shown once it has come.
  const [awaited, setAwaited] = useState<number | null>(null);
  const come = awaited === null ? undefined : samples.at(awaited)?.place;
  if (come !== undefined && come === place) setAwaited(null);
  useEffect(() => {
    if (come !== undefined) onPlace(come);
  }, [come, onPlace]);
  const open = (to: number) => {
    const row = samples.at(to);
    setAwaited(row ? null : to);
    if (row) onPlace(row.place);
    else window.reveal(to);
  };
  return {
    number,
    open,
    step: (by) => {
      setAwaited(null);
      const next = number === undefined ? undefined : samples.at(number + by)?.place;
      const to = next ?? (by > 0 ? own?.following : own?.previous) ?? undefined;
      if (to !== undefined) onPlace(to);
      else if (number === undefined && total > 0) open(0);
    },
  };
}

/** The sample's place in the list; undefined if another sample has that place: the sample does not pass the filter. */
function rankOf(samples: Samples, detail: SampleDetail | undefined): number | undefined {
  if (detail === undefined) return undefined;
  const there = samples.at(detail.rank);
  return there === undefined || there.place === detail.row.place ? detail.rank : undefined;
}
