import { isBundle, bundle } from "../api/bundle";
import { ago } from "../ui/format";
import { Moment, useNow } from "../ui/times";
import styles from "./Connection.module.css";
import { useLive } from "./live";

/** Whether what is shown is live, and since when it is not. */
export function Connection() {
  const { state, since } = useLive();
  const now = useNow();
  const made = bundle();
  if (isBundle() && made) {
    return (
      <span className={styles.whole} data-state="off">
        As of <Moment time={made.created} />
      </span>
    );
  }
  const age = since === null ? "" : ago(Math.max(0, now - since));
  const words = { live: "Live", reconnecting: "Reconnecting", stale: `Stale, last update ${age}`, off: "Not live" }[state];
  return (
    <span className={styles.whole} data-state={state} role="status">
      <span className={styles.dot} aria-hidden />
      <span className={state === "live" ? styles.word : undefined}>{words}</span>
    </span>
  );
}
