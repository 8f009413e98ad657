import { Icon } from "../ui";
import styles from "./figures.module.css";
import { NOT_VALID } from "./not-valid";

interface Props {
  readonly text: string;
  /** Whether it is the engine's: false where the client was too slow. */
  readonly valid: boolean;
}

/** A latency or a rate; marked where it does not describe the engine. */
export function SpeedFigure({ text, valid }: Props) {
  if (valid || text === "–") return text;
  return (
    <span className={styles.invalid} title={NOT_VALID}>
      <Icon name="warning" size={12} label={NOT_VALID} /> {text}
    </span>
  );
}
