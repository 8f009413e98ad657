import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useApi, useMutate } from "../../api";
import type { DefinitionRow } from "../../api/schema";
import { usePlace } from "../../app/place";
import { Button, Dialog, FaultBox, Icon, Skeleton } from "../../ui";
import { EstimateView } from "./EstimateView";
import type { Check } from "./use-check";
import layout from "../../ui/layout.module.css";
import styles from "./plan.module.css";

interface Props {
  readonly open: boolean;
  readonly row: DefinitionRow;
  /** Of the text that is looked at: another one is not submitted. */
  readonly etag: string;
  readonly check: Check;
  readonly onClose: () => void;
}

/** Submits a plan, once the user has seen what it would take; then shows what the command says. */
export function SubmitDialog({ open, row, etag, check, onClose }: Props) {
  const { search, update } = usePlace("/plans/$definition");
  const begin = useMutate("post", "/submissions");
  const { estimated, outdated, estimating, estimate } = check;
  const needed = open && !search.submission && !estimating && (estimated === null || outdated);
  useEffect(() => {
    if (needed) estimate();
    // Once for each opening: a fault has its own button.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [open]);
  const close = () => {
    begin.reset();
    update({ submission: "" }, { replace: true });
    onClose();
  };
  if (search.submission) return <SubmissionLog id={search.submission} name={row.name} onClose={close} />;
  const submit = () => {
    void begin
      .run({ body: { definition: row.id, etag } })
      .then((found) => update({ submission: found.submission }, { replace: true }))
      .catch(() => undefined);
  };
  return (
    <Dialog
      open={open}
      wide
      title={`Submit ${row.name}?`}
      onClose={close}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" icon="play" disabled={begin.pending} onClick={submit}>
            Submit
          </Button>
        </>
      }
    >
      <div className={layout.stack}>
        <p>
          This runs <code>hpcbench submit</code> under your account on the portal&apos;s host. It first fetches missing data and images.
        </p>
        <EstimateView check={check} />
        <FaultBox fault={begin.fault} />
      </div>
    </Dialog>
  );
}

const WORDS = { running: "Submitting…", done: "Submitted", failed: "Not submitted" } as const;

function SubmissionLog({ id, name, onClose }: { readonly id: string; readonly name: string; readonly onClose: () => void }) {
  const [ended, setEnded] = useState(false);
  const found = useApi("/submissions/{id}", { path: { id } }, { every: ended ? false : 1000 });
  const state = found.data?.state ?? "running";
  if (state !== "running" && !ended) setEnded(true);
  return (
    <Dialog open wide title={`${WORDS[state]}: ${name}`} onClose={onClose} actions={<Button onClick={onClose}>Close</Button>}>
      <div className={layout.stack}>
        <FaultBox fault={found.error} />
        {!found.data && !found.error && <Skeleton />}
        {found.data && (
          <>
            {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
            <pre className={styles.log} tabIndex={0} role="log" aria-label="Output of hpcbench submit">
              {found.data.log.join("\n") || "No output yet."}
            </pre>
            {state === "running" && <p className={layout.soft}>The submission continues when you close this window.</p>}
            {found.data.id && (
              <p className={layout.row}>
                <Icon name="check" size={14} />
                <Link to="/e/$experiment" params={{ experiment: found.data.id }}>
                  {found.data.id}
                </Link>
              </p>
            )}
          </>
        )}
      </div>
    </Dialog>
  );
}
