import { Cut } from "../../ui";
import styles from "./experiments.module.css";

/** Names in little room: the first, and how many more; all stand in the title. */
export function Names({ names }: { readonly names: readonly string[] }) {
  const [first, ...rest] = names;
  if (first === undefined) return null;
  return (
    <span className={styles.names} title={names.join("\n")}>
      <Cut text={first} />
      {rest.length > 0 && <span className={styles.more}>+{rest.length}</span>}
    </span>
  );
}
