import { Link } from "@tanstack/react-router";
import { useEffect } from "react";
import { useMutate } from "../../api";
import type { DefinitionRow, Submitted } from "../../api/schema";
import { usePlace } from "../../app/place";
import { CommandLog } from "../../parts/CommandLog";
import { Button, Dialog, FaultBox, Icon } from "../../ui";
import { EstimateView } from "./EstimateView";
import type { Check } from "./use-check";
import layout from "../../ui/layout.module.css";

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

function SubmissionLog({ id, name, onClose }: { readonly id: string; readonly name: string; readonly onClose: () => void }) {
  const titles = { running: `Submitting…: ${name}`, done: `Submitted: ${name}`, failed: `Not submitted: ${name}` };
  const below = ({ id: experiment }: Submitted) =>
    experiment && (
      <p className={layout.row}>
        <Icon name="check" size={14} />
        <Link to="/e/$experiment" params={{ experiment }}>
          {experiment}
        </Link>
      </p>
    );
  return <CommandLog id={id} verb="submit" titles={titles} onClose={onClose} below={below} />;
}
