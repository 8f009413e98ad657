import styles from "./Cut.module.css";

interface Props {
  readonly text: string;
}

/** Characters at the end that are never cut: names of one family differ there. */
const END = 12;

/** Characters that have room everywhere. */
const SHORT = 16;

/** A name in little room: it is cut before its end, and its title has all of it. */
export function Cut({ text }: Props) {
  if (text.length <= SHORT) return <>{text}</>;
  const end = Math.min(END, Math.floor(text.length / 2));
  return (
    <span className={styles.cut} title={text}>
      <span className="visually-hidden">{text}</span>
      <span aria-hidden="true" className={styles.head}>
        {text.slice(0, text.length - end)}
      </span>
      <span aria-hidden="true" className={styles.end}>
        {text.slice(text.length - end)}
      </span>
    </span>
  );
}
