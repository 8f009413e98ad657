import { useState } from "react";
import { Button, Popover, TextInput } from "../../ui";
import styles from "./filter-list.module.css";

interface Props {
  readonly label: string;
  readonly values: readonly string[];
  readonly chosen: readonly string[];
  readonly onChange: (chosen: readonly string[]) => void;
}

/** Values shown at once; the rest is found by typing. */
const MOST = 60;

/** Any of many values, behind a button. */
export function FilterList({ label, values, chosen, onChange }: Props) {
  const [words, setWords] = useState("");
  const fit = values.filter((one) => one.toLowerCase().includes(words.toLowerCase()));
  const turn = (value: string, on: boolean) => onChange(on ? [...chosen, value] : chosen.filter((one) => one !== value));
  return (
    <Popover label={chosen.length > 0 ? `${label}: ${chosen.length}` : label} icon="chevron">
      {() => (
        <div className={styles.list}>
          {values.length > 8 && <TextInput label={`Find in ${label.toLowerCase()}`} search value={words} onChange={setWords} width="100%" />}
          <ul className={styles.values}>
            {fit.slice(0, MOST).map((value) => (
              <li key={value}>
                <label className={styles.value}>
                  <input type="checkbox" checked={chosen.includes(value)} onChange={(event) => turn(value, event.target.checked)} />
                  <span>{value}</span>
                </label>
              </li>
            ))}
          </ul>
          {fit.length > MOST && <p className={styles.more}>and {fit.length - MOST} more: type to search</p>}
          {chosen.length > 0 && (
            <Button small kind="quiet" icon="cross" onClick={() => onChange([])}>
              All
            </Button>
          )}
        </div>
      )}
    </Popover>
  );
}
