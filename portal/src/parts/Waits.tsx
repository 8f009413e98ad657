import type { Wait } from "../api/schema";
import { Icon } from "../ui";
import { count } from "../ui/format";
import styles from "./failures.module.css";

/** Jobs that wait, and for what, in words. */
export function Waits({ waits }: { readonly waits: readonly Wait[] }) {
  return (
    <ul className={styles.list}>
      {waits.map((one) => (
        <li key={`${one.job} ${one.step} ${one.reason}`} className={styles.one}>
          <span className={styles.waits}>
            <Icon name="clock" size={14} />
            {count(one.count)}
          </span>
          <div className={styles.told}>
            <p className={styles.cause}>{one.why}</p>
            <p className={styles.where}>
              {one.step}, job {one.job}
              {one.reason && ` · Slurm says ${one.reason}`}
            </p>
          </div>
        </li>
      ))}
    </ul>
  );
}
