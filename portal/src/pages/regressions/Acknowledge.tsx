import { useEffect, useRef, useState } from "react";

import { useMutate } from "../../api";
import { Button, Dialog, FaultBox, Field, toast } from "../../ui";
import styles from "./Details.module.css";

/** Asks why a change is no alarm any more, and until when. */
export function Acknowledge({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const { run, pending, fault } = useMutate("put", "/regressions/{regression}/acknowledgement");
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const [tried, setTried] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  const said = reason.trim();
  const save = () => {
    setTried(true);
    if (said === "") return;
    run({ path: { regression: id }, body: { reason: said, until: endOf(until) } }).then(
      () => {
        toast("Acknowledged");
        onClose();
      },
      () => undefined,
    );
  };
  const actions = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button kind="primary" onClick={save} disabled={pending}>
        Acknowledge
      </Button>
    </>
  );
  return (
    <Dialog open title="Acknowledge a regression" onClose={onClose} actions={actions}>
      <div className={styles["form"]}>
        <FaultBox fault={fault} />
        <Field label="Why is this no alarm?" error={tried && said === "" ? "Enter a reason." : null} hint="All users of this home see the reason.">
          {(field, described) => <textarea ref={box} id={field} aria-describedby={described} rows={3} maxLength={500} value={reason} onChange={(event) => setReason(event.target.value)} />}
        </Field>
        <Field label="Until" hint="Empty: no end date.">
          {(field, described) => <input id={field} aria-describedby={described} type="date" value={until} onChange={(event) => setUntil(event.target.value)} />}
        </Field>
      </div>
    </Dialog>
  );
}

/** The end of a day, seconds since the epoch; null: none was given. */
function endOf(day: string): number | null {
  const time = new Date(`${day}T23:59:59`).getTime();
  return Number.isNaN(time) ? null : time / 1000;
}
