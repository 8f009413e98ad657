import { type ReactNode, useEffect, useId, useRef } from "react";
import { Button } from "./Button";
import { join } from "./join";
import styles from "./Dialog.module.css";

interface Props {
  readonly open: boolean;
  readonly title: string;
  readonly onClose: () => void;
  readonly actions?: ReactNode;
  readonly wide?: boolean;
  readonly children: ReactNode;
}

/** A window over the page: the browser's own, which keeps the focus inside and gives it back. */
export function Dialog({ open, title, onClose, actions, wide, children }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const head = useId();
  useEffect(() => {
    const dialog = box.current;
    if (!dialog || !open || dialog.open) return undefined;
    dialog.showModal();
    return () => dialog.close();
  }, [open]);
  if (!open) return null;
  return (
    // The click is on the veil beside the window; Escape does the same for the keyboard.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog
      ref={box}
      className={join(styles.dialog, wide && styles.wide)}
      aria-labelledby={head}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      <div className={styles.inside}>
        <header className={styles.head}>
          <h2 id={head}>{title}</h2>
          <Button kind="quiet" small icon="cross" aria-label="Close" onClick={onClose} />
        </header>
        <div className={styles.body}>{children}</div>
        {actions && <footer className={styles.actions}>{actions}</footer>}
      </div>
    </dialog>
  );
}

interface ConfirmProps extends Omit<Props, "actions"> {
  /** Word of the button that does it. */
  readonly action: string;
  /** Word of the button that leaves everything as it is. */
  readonly back?: string;
  readonly danger?: boolean;
  readonly busy?: boolean;
  readonly onConfirm: () => void;
}

/** Asks once more before something is done. */
export function Confirm({ action, back = "Cancel", danger, busy, onConfirm, ...rest }: ConfirmProps) {
  const actions = (
    <>
      <Button onClick={rest.onClose}>{back}</Button>
      <Button kind={danger ? "danger" : "primary"} disabled={busy} onClick={onConfirm}>
        {action}
      </Button>
    </>
  );
  return <Dialog {...rest} actions={actions} />;
}
