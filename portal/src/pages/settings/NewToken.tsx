import { type SubmitEvent, useState } from "react";
import { useMutate } from "../../api";
import type { TokenRow } from "../../api/schema";
import { useSession } from "../../app/session";
import { Button, Command, Dialog, FaultBox, Field, Select, Toggle } from "../../ui";
import { counted } from "../../ui/format";
import styles from "./settings.module.css";

type Scope = TokenRow["scopes"][number];

const SCOPES: readonly { readonly scope: Scope; readonly label: string }[] = [
  { scope: "read", label: "Read everything that this portal shows" },
  { scope: "plan-edit", label: "Write plans" },
  { scope: "submit", label: "Submit plans" },
];

const DAYS = ["1", "7", "30", "90", "365"] as const;

/** Makes a token, and shows it this once. */
export function NewToken({ onClose }: { readonly onClose: () => void }) {
  const { session } = useSession();
  const { run, pending, fault } = useMutate("post", "/tokens");
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(["read"]);
  const [days, setDays] = useState<(typeof DAYS)[number]>("30");
  const [made, setMade] = useState<string | null>(null);
  const may = (scope: Scope) => scope === "read" || (scope === "plan-edit" ? session?.may_edit : session?.may_submit) === true;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    run({ body: { name: name.trim(), scopes, days: Number(days) } })
      .then(({ token }) => setMade(token))
      .catch(() => undefined);
  };
  if (made !== null) {
    return (
      <Dialog open title="Your new token" onClose={onClose} actions={<Button kind="primary" onClick={onClose}>I have copied it</Button>}>
        <p>The portal shows this token only once. Keep it in a file that only you can read.</p>
        <Command text={made} />
      </Dialog>
    );
  }
  return (
    <Dialog open title="New token" onClose={onClose}>
      <form className={styles.form} onSubmit={submit}>
        <Field label="What is it for?">{(id) => <input id={id} value={name} maxLength={100} required onChange={(event) => setName(event.target.value)} />}</Field>
        <fieldset className={styles.choice}>
          <legend>What may it do?</legend>
          {SCOPES.map(({ scope, label }) => (
            <Toggle key={scope} label={may(scope) ? label : `${label} (not allowed by this portal)`} disabled={!may(scope)} checked={scopes.includes(scope)} onChange={(on) => setScopes(on ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
          ))}
        </fieldset>
        <div className={styles.line}>
          Valid for <Select label="Days" value={days} options={DAYS.map((value) => ({ value, label: counted(Number(value), "day") }))} onChange={setDays} />
        </div>
        <FaultBox fault={fault} />
        <Button kind="primary" type="submit" disabled={pending || name.trim() === "" || scopes.length === 0}>
          Create
        </Button>
      </form>
    </Dialog>
  );
}
