import { Icon } from "./Icon";
import { join } from "./join";
import { lookOf } from "./states";
import styles from "./StateChip.module.css";

interface Props {
  readonly state: string;
  /** Stands behind the word, e.g. a count. */
  readonly note?: string | number | undefined;
  /** Without a ground. */
  readonly quiet?: boolean;
}

/** A state: icon, word and colour. */
export function StateChip({ state, note, quiet }: Props) {
  const { tone, icon, word, means } = lookOf(state);
  return (
    <span className={join(styles.chip, styles[tone], quiet && styles.quiet)} title={means || undefined}>
      <Icon name={icon} size={12} />
      {word}
      {note !== undefined && <span className={styles.note}>{note}</span>}
    </span>
  );
}
