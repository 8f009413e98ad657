import { type ReactNode, useState } from "react";
import { useApi } from "../api";
import type { Submitted } from "../api/schema";
import { Button, Dialog, FaultBox, Skeleton } from "../ui";
import layout from "../ui/layout.module.css";
import styles from "./command-log.module.css";

interface Props {
  /** Id of the command. */
  readonly id: string;
  readonly verb: Submitted["verb"];
  /** The window's title in each state. */
  readonly titles: Readonly<Record<Submitted["state"], string>>;
  readonly onClose: () => void;
  /** Shown below the output. */
  readonly below?: (found: Submitted) => ReactNode;
}

/** The output of a command that the portal runs, until its end. */
export function CommandLog({ id, verb, titles, onClose, below }: Props) {
  const [ended, setEnded] = useState(false);
  const found = useApi("/submissions/{id}", { path: { id } }, { every: ended ? false : 1000 });
  const state = found.data?.state ?? "running";
  if (state !== "running" && !ended) setEnded(true);
  return (
    <Dialog open wide title={titles[state]} onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <div className={layout.stack}>
        <FaultBox fault={found.error} />
        {!found.data && !found.error && <Skeleton />}
        {found.data && (
          <>
            {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
            <pre className={styles.log} tabIndex={0} role="log" aria-label={`Output of hpcbench ${verb}`}>
              {found.data.log.join("\n") || "No output yet."}
            </pre>
            {state === "running" && <p className={layout.soft}>The command continues when you close this window.</p>}
            {below?.(found.data)}
          </>
        )}
      </div>
    </Dialog>
  );
}
