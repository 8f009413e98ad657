import { Panel } from "../../ui";
import { type Look, setLook, useLook } from "../../ui/look";
import styles from "./settings.module.css";

const THEMES = [
  { value: "system", label: "As the system" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
] as const;

const DENSITIES = [
  { value: "compact", label: "Compact" },
  { value: "comfortable", label: "Comfortable" },
] as const;

/** Theme and density; the browser keeps them. */
export function Appearance() {
  const look = useLook();
  return (
    <Panel title="Appearance">
      <div className={styles.choices}>
        <Choice name="Theme" options={THEMES} value={look.theme} onChange={(theme: Look["theme"]) => setLook({ theme })} />
        <Choice name="Rows" options={DENSITIES} value={look.density} onChange={(density: Look["density"]) => setLook({ density })} />
      </div>
    </Panel>
  );
}

interface ChoiceProps<T extends string> {
  readonly name: string;
  readonly options: readonly { readonly value: T; readonly label: string }[];
  readonly value: T;
  readonly onChange: (value: T) => void;
}

function Choice<T extends string>({ name, options, value, onChange }: ChoiceProps<T>) {
  return (
    <fieldset className={styles.choice}>
      <legend>{name}</legend>
      {options.map((option) => (
        <label key={option.value}>
          <input type="radio" name={name} checked={option.value === value} onChange={() => onChange(option.value)} />
          {option.label}
        </label>
      ))}
    </fieldset>
  );
}
