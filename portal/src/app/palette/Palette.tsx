import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Icon } from "../../ui/Icon";
import { join } from "../../ui/join";
import styles from "./Palette.module.css";
import { type Choice, useChoices } from "./choices";

/** Jumps to anything: pages, experiments, run tasks, samples by their id; and does what has no button. */
export function Palette({ onClose }: { readonly onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { choices, busy, more } = useChoices(text);
  const box = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  const navigate = useNavigate();
  const place = Math.min(at, choices.length - 1);
  useEffect(() => {
    const dialog = box.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [place]);
  const take = (choice: Choice | undefined) => {
    if (!choice) return;
    onClose();
    if (choice.act) choice.act();
    else if (choice.to) void navigate(choice.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setAt((place + step + choices.length) % Math.max(1, choices.length));
    else if (event.key === "Enter") take(choices[place]);
    else return;
    event.preventDefault();
  };
  return (
    // The click is on the veil; Escape does the same for the keyboard.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog
      ref={box}
      className={styles.palette}
      aria-label="Jump to anything"
      onClick={(event) => event.target === box.current && onClose()}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <div className={styles.field}>
        <Icon name="search" />
        <input
          role="combobox"
          aria-label="Jump to"
          aria-expanded
          aria-controls={id}
          aria-activedescendant={choices[place] ? `${id}-${place}` : undefined}
          placeholder="Experiment, run task, sample, model, dataset, page, action…"
          value={text}
          spellCheck={false}
          autoComplete="off"
          // The window was opened to type into it.
          // eslint-disable-next-line jsx-a11y/no-autofocus
          autoFocus
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div id={id} ref={list} role="listbox" aria-label="Matches" tabIndex={-1} className={styles.list}>
        {choices.map((choice, number) => (
          <Option key={choice.id} id={`${id}-${number}`} choice={choice} head={choices[number - 1]?.group === choice.group ? null : choice.group} chosen={number === place} onTake={() => take(choice)} onPoint={() => setAt(number)} />
        ))}
      </div>
      <p className={styles.none} role="status">
        {more ? "There are more matches: add words, for example of the experiment's id." : choices.length > 0 ? "" : busy ? "Searching…" : "No name matches."}
      </p>
    </dialog>
  );
}

interface OptionProps {
  readonly id: string;
  readonly choice: Choice;
  /** Heading above it, where a group begins. */
  readonly head: string | null;
  readonly chosen: boolean;
  readonly onTake: () => void;
  readonly onPoint: () => void;
}

function Option({ id, choice, head, chosen, onTake, onPoint }: OptionProps) {
  return (
    <>
      {head !== null && (
        <div role="presentation" className={styles.head}>
          {head}
        </div>
      )}
      {/* The keys are handled in the field, which has the focus. */}
      {/* eslint-disable-next-line jsx-a11y/click-events-have-key-events */}
      <div id={id} role="option" aria-selected={chosen} tabIndex={-1} className={join(styles.option, chosen && styles.chosen)} onClick={onTake} onPointerMove={onPoint}>
        <Icon name={choice.icon} size={15} />
        <span className={styles.name}>{choice.name}</span>
        {choice.detail && <span className={styles.detail}>{choice.detail}</span>}
      </div>
    </>
  );
}
