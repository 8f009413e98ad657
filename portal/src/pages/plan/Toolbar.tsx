import type { DefinitionRow } from "../../api/schema";
import { useSession } from "../../app/session";
import { Button, FaultBox, Icon, KeyName, Popover } from "../../ui";
import { counted } from "../../ui/format";
import { type DefinitionKind, ONE } from "./kinds";
import type { Actions } from "./use-actions";
import type { Check } from "./use-check";
import type { EditedText } from "./use-text";
import layout from "../../ui/layout.module.css";
import styles from "./plan.module.css";

interface Props {
  readonly row: DefinitionRow | null;
  readonly kind: DefinitionKind;
  readonly edited: EditedText;
  readonly check: Check;
  readonly actions: Actions;
  readonly readOnly: boolean;
  readonly onCheck: () => void;
}

/** Name, state, and what can be done. */
export function Toolbar({ row, kind, edited, check, actions, readOnly, onCheck }: Props) {
  const { session } = useSession();
  const errors = check.found?.problems.filter((note) => note.severity === "error").length ?? 0;
  const submits = kind === "plans" && row?.origin === "own" && session?.may_submit === true;
  const why = edited.dirty ? "Save the file first" : errors > 0 ? "Correct the errors first" : check.found === null ? "The check is running" : undefined;
  return (
    <header className={styles.head}>
      <div className={layout.bar}>
        <div className={styles.name}>
          <h1 className={layout.wrap}>{row?.name ?? `New ${ONE[kind]}`}</h1>
          {row && <span className={layout.soft}>{row.folder === "." ? ONE[kind] : `${ONE[kind]} in ${row.folder}`}</span>}
          <State edited={edited} check={check} readOnly={readOnly} isNew={row === null} errors={errors} />
        </div>
        <div className={layout.row}>
          {!readOnly && (
            <Button kind="primary" disabled={actions.busy || (row !== null && !edited.dirty) || session?.may_edit === false} onClick={() => void actions.save()} title={session?.may_edit === false ? "To save, restart the portal with --allow-edit" : "Ctrl+S"}>
              Save
            </Button>
          )}
          <Button icon="check" disabled={check.estimating} onClick={onCheck} title="Ctrl+Enter">
            {check.estimating ? "Estimating…" : kind === "plans" ? "Check and estimate" : "Check"}
          </Button>
          {submits && (
            <Button icon="play" disabled={why !== undefined} title={why} onClick={() => actions.open("submit")}>
              Submit
            </Button>
          )}
          <Popover label="More" icon="more" iconOnly align="end">
            {(close) => <More row={row} readOnly={readOnly} actions={actions} close={close} />}
          </Popover>
        </div>
      </div>
      {actions.dialog === "none" && <FaultBox fault={actions.fault} />}
    </header>
  );
}

function More({ row, readOnly, actions, close }: { readonly row: DefinitionRow | null; readonly readOnly: boolean; readonly actions: Actions; readonly close: () => void }) {
  const choose = (act: () => void) => () => {
    close();
    act();
  };
  return (
    <div className={styles.more}>
      <Button kind="quiet" icon="export" onClick={choose(actions.download)}>
        Download YAML
      </Button>
      {row && (
        <Button kind="quiet" icon="copy" onClick={choose(actions.duplicate)}>
          Duplicate
        </Button>
      )}
      {row && !readOnly && (
        <Button kind="quiet" icon="trash" onClick={choose(() => actions.open("delete"))}>
          Delete
        </Button>
      )}
      <dl className={styles.keys}>
        {[["mod+s", "save"], ["mod+Enter", "check"], ["mod+f", "search"], ["mod+ ", "complete"]].map(([key = "", does]) => (
          <div key={key}>
            <dt>
              <KeyName name={key} />
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p className={layout.small}>Tab indents. Escape, then Tab, leaves the editor.</p>
    </div>
  );
}

interface StateProps {
  readonly edited: EditedText;
  readonly check: Check;
  readonly readOnly: boolean;
  readonly isNew: boolean;
  readonly errors: number;
}

function State({ edited, check, readOnly, isNew, errors }: StateProps) {
  const saved = isNew ? "Not saved yet" : readOnly ? "Read only" : edited.dirty ? "Unsaved changes" : "Saved";
  const checked = check.found === null ? "Checking…" : errors > 0 ? counted(errors, "error") : "No errors";
  return (
    <span className={styles.state} role="status">
      <span className={styles.mark} data-tone={edited.dirty || isNew ? "warn" : "away"}>
        <Icon name={edited.dirty || isNew ? "edit" : readOnly ? "key" : "check"} size={12} /> {saved}
      </span>
      <span className={styles.mark} data-tone={check.found === null ? "away" : errors > 0 ? "bad" : "good"}>
        <Icon name={check.found === null ? "clock" : errors > 0 ? "warning" : "check"} size={12} /> {checked}
      </span>
    </span>
  );
}
