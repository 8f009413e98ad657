import { Icon } from "./Icon";
import { join } from "./join";
import { type Look, lookOf, outcomeLook } from "./states";
import styles from "./StateChip.module.css";

interface Props {
  readonly state: string;
  /** Text after the word, e.g. a count. */
  readonly note?: string | number | undefined;
  /** Without a ground. */
  readonly quiet?: boolean;
}

/** A state: icon, word and colour. */
export function StateChip({ state, note, quiet }: Props) {
  return <Chip look={lookOf(state)} note={note} quiet={quiet} />;
}

/** How a request ended. */
export function OutcomeChip({ outcome, quiet }: { readonly outcome: string; readonly quiet?: boolean }) {
  return <Chip look={outcomeLook(outcome)} quiet={quiet} />;
}

function Chip({ look, note, quiet }: { readonly look: Look; readonly note?: Props["note"]; readonly quiet: boolean | undefined }) {
  const { tone, icon, word, means } = look;
  return (
    <span className={join(styles.chip, styles[tone], quiet && styles.quiet)} title={means || undefined}>
      <Icon name={icon} size={12} />
      {word}
      {note !== undefined && <span className={styles.note}>{note}</span>}
    </span>
  );
}
