import { CopyButton } from "./CopyButton";
import styles from "./Command.module.css";

/** A command to copy. */
export function Command({ text, title }: { readonly text: string; readonly title?: string }) {
  return (
    <div className={styles.whole}>
      {title && <p className={styles.title}>{title}</p>}
      <div className={styles.line}>
        {/* Scrolls sideways: the keyboard must reach it. */}
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
        <pre className={styles.text} tabIndex={0} aria-label={title ?? "Command"}>
          {text}
        </pre>
        <CopyButton text={text} />
      </div>
    </div>
  );
}
