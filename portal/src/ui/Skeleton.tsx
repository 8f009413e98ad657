import styles from "./Skeleton.module.css";

const WIDTHS = ["92%", "74%", "84%", "62%", "88%", "70%"];

/** Something is being fetched; shown only where it takes a moment. */
export function Skeleton({ lines = 3, label = "Loading" }: { readonly lines?: number; readonly label?: string }) {
  return (
    <div className={styles.lines} role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, place) => (
        <span key={place} className={styles.line} style={{ width: WIDTHS[place % WIDTHS.length] }} />
      ))}
    </div>
  );
}
