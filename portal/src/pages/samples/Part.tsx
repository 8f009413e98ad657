import { type ReactNode, useState } from "react";

import { CopyButton, Icon } from "../../ui";
import styles from "./Part.module.css";

interface Props {
  readonly title: string;
  /** What can be copied of it. */
  readonly copy?: string | (() => string);
  readonly actions?: ReactNode;
  /** Closed until the user opens it. */
  readonly folded?: boolean;
  /** Given: the opening is kept by the caller. */
  readonly open?: boolean;
  readonly onOpen?: (open: boolean) => void;
  readonly children: ReactNode;
}

/** A part of the panel with its heading. */
export function Part({ title, copy, actions, folded = false, open, onOpen, children }: Props) {
  const [own, setOwn] = useState(!folded);
  const shown = open ?? own;
  const toggle = () => (onOpen ?? setOwn)(!shown);
  const text = typeof copy === "function" ? (shown ? copy() : "") : copy;
  return (
    <section className={styles["part"]} aria-label={title}>
      <div className={styles["head"]}>
        <h3>
          {folded ? (
            <button type="button" className={styles["fold"]} aria-expanded={shown} onClick={toggle}>
              <span className={styles["mark"]} data-open={shown}>
                <Icon name="right" size={12} />
              </span>
              {title}
            </button>
          ) : (
            title
          )}
        </h3>
        <span className={styles["actions"]}>
          {actions}
          {text ? <CopyButton text={text} /> : null}
        </span>
      </div>
      {shown && children}
    </section>
  );
}
