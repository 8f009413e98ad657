import { useId, useState } from "react";
import type { Choice } from "../../../api/schema";
import { TextInput } from "../../../ui";
import { figuresOf } from "./figures";
import styles from "./form.module.css";

interface Props {
  readonly label: string;
  readonly choices: readonly Choice[];
  readonly chosen: readonly string[];
  /** Exactly one is chosen. */
  readonly single: boolean;
  /** Nothing needs to be chosen. */
  readonly optional: boolean;
  readonly disabled: boolean;
  /** Why a choice does not fit; empty: it does. */
  readonly misfit?: (choice: Choice) => string;
  readonly onChange: (chosen: readonly string[]) => void;
}

/** Above so many choices there is a field to search them. */
const MANY = 6;

/** Definitions of a kind to choose from, with the figures that decide. */
export function Picker({ label, choices, chosen, single, optional, disabled, misfit, onChange }: Props) {
  const [sought, setSought] = useState("");
  const [first] = useState(chosen); // on top; a click moves nothing
  const group = useId();
  const words = sought.toLowerCase();
  const known = new Set(choices.map((one) => one.name));
  const unknown: Choice[] = chosen.filter((name) => !known.has(name)).map((name) => ({ kind: "models", name, fault: "no such definition" }) as Choice);
  const ordered = [...unknown, ...choices].sort((one, other) => Number(first.includes(other.name)) - Number(first.includes(one.name)));
  const shown = ordered.filter((one) => chosen.includes(one.name) || `${one.name} ${one.description}`.toLowerCase().includes(words));
  const turn = (name: string) => {
    if (!chosen.includes(name)) onChange(single ? [name] : [...chosen, name]);
    else if (chosen.length > 1 || optional) onChange(chosen.filter((one) => one !== name));
  };
  return (
    <fieldset className={styles.picker} disabled={disabled}>
      <legend>
        {label} <span className={styles.soft}>{single ? "" : chosen.length}</span>
      </legend>
      {choices.length > MANY && <TextInput label={`Search ${label.toLowerCase()}`} placeholder="Search" search value={sought} onChange={setSought} width="100%" />}
      <ul className={styles.choices}>
        {shown.map((one) => {
          const wrong = one.fault || misfit?.(one) || "";
          const isChosen = chosen.includes(one.name);
          return (
            <li key={one.name}>
              <label className={styles.choice} title={one.description}>
                <input type={single && !optional ? "radio" : "checkbox"} name={group} checked={isChosen} onChange={() => turn(one.name)} />
                <span className={styles.called}>{one.name}</span>
                <span className={wrong ? styles.misfit : styles.soft}>{wrong || figuresOf(one)}</span>
              </label>
            </li>
          );
        })}
        {shown.length === 0 && <li className={styles.soft}>Nothing matches</li>}
      </ul>
    </fieldset>
  );
}
