import { CopyButton } from "../ui";
import styles from "./definition.module.css";

interface Props {
  readonly title: string;
  readonly value: unknown;
}

/** Settings as they were resolved, folded; secrets are references. */
export function Definition({ title, value }: Props) {
  const text = JSON.stringify(value, null, 2);
  return (
    <details className={styles.definition}>
      <summary>{title}</summary>
      <div className={styles.code}>
        {/* Scrolls: the keyboard must reach it. */}
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
        <pre tabIndex={0} aria-label={title}>
          {text}
        </pre>
        <CopyButton text={text} />
      </div>
    </details>
  );
}
