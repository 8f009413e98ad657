import { Ago, Button, Icon } from "../../ui";
import type { Draft } from "./draft";
import type { EditedText } from "./use-text";
import styles from "./plan.module.css";

/** What was typed here before, and not saved. */
export function DraftOffer({ edited, draft }: { readonly edited: EditedText; readonly draft: Draft }) {
  const other = draft.etag !== edited.saved.etag;
  return (
    <div className={styles.offer} role="status">
      <Icon name="edit" />
      <p>
        This browser has an unsaved draft, written <Ago time={draft.time} />.{other && " The saved file has changed since then."}
      </p>
      <Button small kind="primary" onClick={edited.takeDraft}>
        Restore the draft
      </Button>
      <Button small onClick={edited.dropDraft}>
        Discard the draft
      </Button>
    </div>
  );
}
