import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Icon } from "./Icon";
import styles from "./Field.module.css";

interface FieldProps {
  readonly label: string;
  readonly hint?: ReactNode;
  readonly error?: string | null | undefined;
  /** The field itself, given the id that ties it to its label. */
  readonly children: (id: string, described: string | undefined) => ReactNode;
}

/** A field of a form, with its label, a hint, and what is wrong with it. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = hint || error ? `${id}-hint` : undefined;
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={styles.label}>
        {label}
      </label>
      {children(id, described)}
      {described && (
        <p id={described} className={error ? styles.error : styles.hint}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}

interface NumberProps {
  readonly label: string;
  readonly hint?: string;
  /** Null: nothing. */
  readonly value: number | null;
  /** Smaller numbers are not reported. */
  readonly min: number;
  readonly step?: number;
  readonly readOnly?: boolean;
  readonly onChange: (value: number | null) => void;
}

/** A field for a number, or for nothing. */
export function NumberField({ label, hint, value, min, step = 1, readOnly = false, onChange }: NumberProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, described) => (
        <input
          id={id}
          aria-describedby={described}
          type="number"
          min={min}
          step={step}
          readOnly={readOnly}
          value={value ?? ""}
          onChange={(event) => {
            const typed = event.target.value.trim();
            if (typed === "") onChange(null);
            else if (Number(typed) >= min) onChange(Number(typed));
          }}
        />
      )}
    </Field>
  );
}

interface TextProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly placeholder?: string;
  /** Milliseconds of rest before a change is reported; Enter reports it at once. */
  readonly delay?: number;
  readonly search?: boolean;
  readonly width?: number | string;
}

/** A line of text; the label is for those who do not see the placeholder. */
export function TextInput({ label, value, onChange, placeholder, delay = 0, search, width }: TextProps) {
  const [typed, setTyped] = useState(value);
  const [told, setTold] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  if (value !== told) {
    // Changed from outside: by Back, or by a link.
    setTold(value);
    setTyped(value);
  }
  useEffect(() => () => clearTimeout(timer.current), []);
  const tell = (text: string) => {
    clearTimeout(timer.current);
    setTold(text);
    onChange(text);
  };
  return (
    <span className={styles.text} style={{ width }}>
      {search && <Icon name="search" size={14} />}
      <input
        type={search ? "search" : "text"}
        aria-label={label}
        placeholder={placeholder ?? label}
        value={typed}
        spellCheck={false}
        autoComplete="off"
        onChange={(event) => {
          const text = event.target.value;
          setTyped(text);
          clearTimeout(timer.current);
          if (delay === 0) tell(text);
          else timer.current = setTimeout(() => tell(text), delay);
        }}
        onKeyDown={(event) => event.key === "Enter" && tell(typed)}
      />
    </span>
  );
}

interface Option<T extends string> {
  readonly value: T;
  readonly label?: string;
  readonly count?: number | undefined;
}

interface SelectProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly Option<T>[];
  readonly onChange: (value: T) => void;
}

/** One of several. */
export function Select<T extends string>({ label, value, options, onChange }: SelectProps<T>) {
  return (
    <span className={styles.select}>
      <select
        aria-label={label}
        title={label}
        value={value}
        onChange={(event) => {
          const found = options.find((option) => option.value === event.target.value);
          if (found) onChange(found.value);
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label ?? option.value}
            {option.count === undefined ? "" : ` (${option.count})`}
          </option>
        ))}
      </select>
      <Icon name="chevron" size={13} />
    </span>
  );
}

interface ToggleProps {
  readonly label: string;
  readonly checked: boolean;
  readonly onChange: (checked: boolean) => void;
  readonly disabled?: boolean;
}

/** Yes or no. */
export function Toggle({ label, checked, onChange, disabled }: ToggleProps) {
  return (
    <label className={styles.toggle}>
      <input type="checkbox" checked={checked} disabled={disabled} onChange={(event) => onChange(event.target.checked)} />
      <span>{label}</span>
    </label>
  );
}

interface ChipsProps<T extends string> {
  readonly label: string;
  readonly options: readonly Option<T>[];
  readonly chosen: readonly T[];
  readonly onChange: (chosen: readonly T[]) => void;
}

/** Any of several, in a row. */
export function Chips<T extends string>({ label, options, chosen, onChange }: ChipsProps<T>) {
  const turn = (value: T) => onChange(chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]);
  return (
    <div role="group" aria-label={label} className={styles.chips}>
      {options.map((option) => (
        <button key={option.value} type="button" className={styles.chip} aria-pressed={chosen.includes(option.value)} onClick={() => turn(option.value)}>
          {option.label ?? option.value}
          {option.count !== undefined && <span className={styles.count}>{option.count}</span>}
        </button>
      ))}
    </div>
  );
}
