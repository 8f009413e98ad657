import { type SubmitEvent, useState } from "react";
import { Button, Command, FaultBox, Field } from "../ui";
import { Icon } from "../ui/Icon";
import { signIn } from "./session";
import styles from "./SignIn.module.css";
import { usePageTitle } from "./title";

interface Props {
  /** Why no user is signed in. */
  readonly why: string | null;
  /** Signing in would not help. */
  readonly closed?: boolean;
}

/** Where a one-time code can be pasted; the place in the address stays, and is shown afterwards. */
export function SignIn({ why, closed }: Props) {
  const [given, setGiven] = useState("");
  const [fault, setFault] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  usePageTitle("Sign in");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setFault(null);
    signIn(given)
      .catch((error: unknown) => setFault(error instanceof Error ? error : new Error("The sign-in failed. Get a new link with `hpcbench portal url`.")))
      .finally(() => setBusy(false));
  };
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <p className={styles.mark}>
          <Icon name="chart" size={22} /> hpcbench
        </p>
        <h1>{closed ? "This page cannot be shown" : "Sign in"}</h1>
        {why && (
          <p className={styles.why} role="alert">
            {why}
          </p>
        )}
        {!closed && (
          <>
            <p className={styles.how}>On the login node, this command prints a new link. The link works once, within a minute:</p>
            <Command text="hpcbench portal url" />
            <form className={styles.form} onSubmit={submit}>
              <Field label="The link, or its code" hint="You can also open the link in the browser.">
                {(id, described) => (
                  <input id={id} aria-describedby={described} type="password" autoComplete="off" spellCheck={false} value={given} onChange={(event) => setGiven(event.target.value)} />
                )}
              </Field>
              <Button kind="primary" type="submit" disabled={busy || given.trim() === ""}>
                Sign in
              </Button>
            </form>
            <FaultBox fault={fault} />
          </>
        )}
      </div>
    </main>
  );
}
