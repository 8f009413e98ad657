import { type SubmitEvent, useState } from "react";
import { Button, Popover, toast } from "../../ui";
import { search as definition, type Search } from "./search";
import styles from "./experiments.module.css";
import { useViews } from "./views";

interface Props {
  readonly search: Search;
  readonly update: (change: Partial<Search>) => void;
}

const NOTHING = definition.values({});

/** Filters, orders and columns under names. */
export function Views({ search, update }: Props) {
  const { views, save, forget } = useViews();
  const [name, setName] = useState("");
  const { picked, ...saved } = search;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (name.trim() === "") return;
    save({ name: name.trim(), search: definition.validate(saved) });
    toast(`Saved as “${name.trim()}”, in this browser`);
    setName("");
  };
  return (
    <Popover label="Views" icon="star" align="end">
      {(close) => (
        <div className={styles.views}>
          {views.length === 0 && <p className={styles.soft}>No view is saved yet. A view keeps filters, order and columns.</p>}
          <ul>
            {views.map((view) => (
              <li key={view.name}>
                <button
                  type="button"
                  className={styles.view}
                  onClick={() => {
                    update({ ...NOTHING, ...definition.values(view.search), picked });
                    close();
                  }}
                >
                  {view.name}
                </button>
                <Button kind="quiet" small icon="trash" aria-label={`Delete ${view.name}`} onClick={() => { forget(view.name); toast({ text: `“${view.name}” is deleted`, undo: () => save(view) }); }} />
              </li>
            ))}
          </ul>
          <form className={styles.save} onSubmit={submit}>
            <input aria-label="Name of the view" placeholder="Name of this view" value={name} maxLength={60} onChange={(event) => setName(event.target.value)} />
            <Button small type="submit" disabled={name.trim() === ""}>
              Save
            </Button>
          </form>
        </div>
      )}
    </Popover>
  );
}
