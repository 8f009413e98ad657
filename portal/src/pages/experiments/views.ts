import { useCallback, useState } from "react";
import { keep, kept } from "../../storage";

/** A filter, an order and columns under a name; the browser keeps it. */
export interface View {
  readonly name: string;
  /** Search parameters, as in the URL. */
  readonly search: Readonly<Record<string, unknown>>;
}

const NAME = "experiments.views";

function read(): readonly View[] {
  const found = kept<unknown>(NAME, []);
  if (!Array.isArray(found)) return [];
  return (found as unknown[]).filter((one): one is View => typeof one === "object" && one !== null && typeof (one as View).name === "string" && typeof (one as View).search === "object");
}

/** Views that were saved, and how to save and forget one. */
export function useViews() {
  const [views, setViews] = useState(read);
  const write = useCallback((change: (before: readonly View[]) => readonly View[]) => {
    // Another tab may have saved one meanwhile.
    const next = change(read());
    keep(NAME, next);
    setViews(next);
  }, []);
  const save = useCallback((view: View) => write((before) => [...before.filter((one) => one.name !== view.name), view]), [write]);
  const forget = useCallback((name: string) => write((before) => before.filter((one) => one.name !== name)), [write]);
  return { views, save, forget };
}
