import { useEffect, useRef, useState } from "react";

import { Button, Dialog, Field } from "../../ui";

interface Props {
  readonly sample: string;
  readonly note: string;
  readonly onSave: (note: string) => void;
  readonly onClose: () => void;
}

/** A note of the user's own on a sample; it flags the sample, too. */
export function NoteDialog({ sample, note, onSave, onClose }: Props) {
  const [text, setText] = useState(note);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const save = () => {
    onSave(text.trim());
    onClose();
  };
  const actions = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button kind="primary" onClick={save}>
        Save
      </Button>
    </>
  );
  return (
    <Dialog open title={`Note on ${sample}`} onClose={onClose} actions={actions}>
      <Field label="Note" hint="For yourself; the sample is flagged with it.">
        {(id, described) => <textarea ref={field} id={id} aria-describedby={described} rows={4} maxLength={2000} value={text} onChange={(event) => setText(event.target.value)} />}
      </Field>
    </Dialog>
  );
}
