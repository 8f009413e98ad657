import styles from "./experiments.module.css";

/** Names in little room: the first, and how many more; all stand in the title. */
export function Names({ names }: { readonly names: readonly string[] }) {
  const [first, ...rest] = names;
  if (first === undefined) return null;
  return (
    <span className={styles.names} title={names.join("\n")}>
      <span className={styles.first}>{first}</span>
      {rest.length > 0 && <span className={styles.more}>+{rest.length}</span>}
    </span>
  );
}
