import { lazy, Suspense, useState } from "react";
import type { DefinitionRow } from "../../api/schema";
import { usePlace } from "../../app/place";
import { Button, Confirm, Dialog, FaultBox, Field, Skeleton } from "../../ui";
import { type DefinitionKind, ONE } from "./kinds";
import { nameIn } from "./outline";
import { SubmitDialog } from "./SubmitDialog";
import type { Actions } from "./use-actions";
import type { Check } from "./use-check";
import type { EditedText } from "./use-text";
import layout from "../../ui/layout.module.css";

const TextDiff = lazy(() => import("./editor/TextDiff"));

interface Props {
  readonly row: DefinitionRow | null;
  readonly kind: DefinitionKind;
  readonly edited: EditedText;
  readonly check: Check;
  readonly actions: Actions;
}

/** Windows over the editor. */
export function Dialogs({ row, kind, edited, check, actions }: Props) {
  const close = () => actions.open("none");
  const name = row?.name ?? "";
  return (
    <>
      {actions.dialog === "name" && <NameDialog kind={kind} text={edited.text} actions={actions} />}
      {actions.dialog === "conflict" && <Conflict edited={edited} actions={actions} />}
      <Confirm open={actions.dialog === "delete"} title={`Delete ${name}?`} action="Delete" danger busy={actions.busy} onClose={close} onConfirm={() => void actions.remove()}>
        <p>This deletes the file from your folder of plans. Experiments that used it stay. You can undo this for ten seconds.</p>
        <FaultBox fault={actions.fault} />
      </Confirm>
      {row && kind === "plans" && <SubmitDialog open={actions.dialog === "submit"} row={row} etag={edited.saved.etag} check={check} onClose={close} />}
    </>
  );
}

function NameDialog({ kind, text, actions }: { readonly kind: DefinitionKind; readonly text: string; readonly actions: Actions }) {
  const { search } = usePlace("/plans/$definition");
  const [name, setName] = useState(search.name || nameIn(text));
  const create = () => void actions.create(name.trim());
  const hint = `The file becomes ${kind === "plans" ? "" : `registries/${kind}/`}${name.trim() || "NAME"}.yaml in your folder of plans.`;
  return (
    <Dialog
      open
      title={`Save the ${ONE[kind]}`}
      onClose={() => actions.open("none")}
      actions={
        <>
          <Button onClick={() => actions.open("none")}>Cancel</Button>
          <Button kind="primary" disabled={!name.trim() || actions.busy} onClick={create}>
            Save
          </Button>
        </>
      }
    >
      <form
        className={layout.stack}
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) create();
        }}
      >
        <Field label="Name" hint={hint}>
          {(id, described) => <input id={id} aria-describedby={described} type="text" value={name} maxLength={120} spellCheck={false} autoComplete="off" onChange={(event) => setName(event.target.value)} />}
        </Field>
        <FaultBox fault={actions.fault} />
      </form>
    </Dialog>
  );
}

function Conflict({ edited, actions }: { readonly edited: EditedText; readonly actions: Actions }) {
  const { theirs } = actions;
  return (
    <Dialog
      open
      wide
      title="The saved file has changed"
      onClose={() => actions.open("none")}
      actions={
        <>
          <Button onClick={() => actions.open("none")}>Continue editing</Button>
          <Button onClick={actions.takeTheirs}>Use the saved file</Button>
          <Button kind="danger" disabled={actions.busy} onClick={() => void actions.overwrite()}>
            Overwrite the saved file
          </Button>
        </>
      }
    >
      <div className={layout.stack}>
        <p>Left: the saved file. Right: your text. Nothing is lost until you choose.</p>
        {theirs ? (
          <Suspense fallback={<Skeleton />}>
            <TextDiff beside before={theirs.text} after={edited.text} labels={["Saved file", "Your text"]} />
          </Suspense>
        ) : (
          <Skeleton />
        )}
        <FaultBox fault={actions.fault} />
      </div>
    </Dialog>
  );
}
