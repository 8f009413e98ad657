import { Toggle } from "../../ui";
import { count } from "../../ui/format";
import styles from "./experiments.module.css";

interface Props {
  readonly label: string;
  readonly counts: readonly (readonly [string, number])[];
  readonly chosen: readonly string[];
  /** How a value is said. */
  readonly word?: ((value: string) => string) | undefined;
  readonly onChange: (chosen: readonly string[]) => void;
}

/** Values to filter by, with how many experiments have them. */
export function FacetList({ label, counts, chosen, word = (value) => value, onChange }: Props) {
  // A chosen value stays, although the others leave no row of it.
  const lost = chosen.filter((value) => !counts.some(([one]) => one === value)).map((value) => [value, 0] as const);
  const all = [...counts, ...lost];
  if (all.length === 0) return <p className={styles.soft}>There are no values to choose from.</p>;
  const turn = (value: string, on: boolean) => onChange(on ? [...chosen, value] : chosen.filter((one) => one !== value));
  return (
    <ul aria-label={label} className={styles.facet}>
      {all.map(([value, amount]) => (
        <li key={value}>
          <Toggle label={word(value)} checked={chosen.includes(value)} onChange={(on) => turn(value, on)} />
          <span className={styles.soft}>{count(amount)}</span>
        </li>
      ))}
    </ul>
  );
}
