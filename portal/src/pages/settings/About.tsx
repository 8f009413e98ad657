import { useState } from "react";
import { isBundle } from "../../api/bundle";
import { signOut, useSession } from "../../app/session";
import { Button, Command, FaultBox, Moment, Panel } from "../../ui";
import styles from "./settings.module.css";

/** Who is signed in where, and the way here. */
export function About() {
  const { session } = useSession();
  const [fault, setFault] = useState<Error | null>(null);
  if (!session) return null;
  const leave = () => {
    signOut().catch((error: unknown) => setFault(error instanceof Error ? error : null));
  };
  const rights = [session.may_edit ? "plans may be written" : "plans can only be read", session.may_submit ? "and submitted" : "and not submitted"].join(" ");
  return (
    <Panel title="This portal" actions={!isBundle() && <Button icon="key" onClick={leave}>Sign out in all tabs</Button>}>
      <FaultBox fault={fault} />
      <dl className={styles.facts}>
        <Fact name="Account">{session.user || "–"}</Fact>
        <Fact name="Host">{session.host || "–"}</Fact>
        <Fact name="Home">{session.home || "–"}</Fact>
        <Fact name="Version">hpcbench {session.version}</Fact>
        <Fact name="Mode">{session.mode}</Fact>
        <Fact name="Rights">{rights}</Fact>
        {!isBundle() && (
          <Fact name="Session">
            renews itself before <Moment time={session.expires} />
          </Fact>
        )}
      </dl>
      {session.tunnel && <Command title="The tunnel, on your own computer" text={session.tunnel} />}
      {!isBundle() && <Command title="A new link, on the login node" text="hpcbench portal url" />}
    </Panel>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
