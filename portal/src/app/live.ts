import { useEffect, useSyncExternalStore, useState } from "react";
import type { ExperimentNews } from "../api/schema";
import type { News } from "../api/types";
import { LiveStream, type LiveState } from "./live-stream";

/** The one stream of this tab. */
export const stream = new LiveStream();

/** Call back on every message. */
export function onNews(listener: (news: News) => void): () => void {
  return stream.onNews(listener);
}

/** The state of the connection, and the newest message about an experiment.
 *
 * @param experiment - none: only the state
 */
export function useLive(experiment?: string): LiveState & { readonly news: ExperimentNews | null } {
  const state = useSyncExternalStore(stream.onState, stream.state);
  const [news, setNews] = useState<ExperimentNews | null>(null);
  useEffect(() => {
    if (experiment === undefined) return undefined;
    return onNews((message) => {
      if (message.kind === "experiment" && message.experiment === experiment) setNews(message);
    });
  }, [experiment]);
  return { ...state, news: news?.experiment === experiment ? news : null };
}
