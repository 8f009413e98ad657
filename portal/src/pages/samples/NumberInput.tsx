import { useState } from "react";

import { Field } from "../../ui";

interface Props {
  readonly label: string;
  readonly value: number | null;
  readonly onChange: (value: number | null) => void;
}

/** A number, or nothing; reported when the field is left, or by Enter. */
export function NumberInput({ label, value, onChange }: Props) {
  const [typed, setTyped] = useState(value === null ? "" : String(value));
  const [told, setTold] = useState(value);
  if (value !== told) {
    setTold(value);
    setTyped(value === null ? "" : String(value));
  }
  const amount = typed.trim() === "" ? null : Number(typed.replace(",", "."));
  const bad = amount !== null && !Number.isFinite(amount);
  const tell = () => {
    if (bad || amount === value) return;
    setTold(amount);
    onChange(amount);
  };
  return (
    <Field label={label} error={bad ? "not a number" : null}>
      {(id, described) => (
        <input
          id={id}
          aria-describedby={described}
          inputMode="decimal"
          size={8}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          onBlur={tell}
          onKeyDown={(event) => event.key === "Enter" && tell()}
        />
      )}
    </Field>
  );
}
