import { type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { Button } from "./Button";
import type { IconName } from "./Icon";
import styles from "./Popover.module.css";

interface Props {
  /** What the button says. */
  readonly label: string;
  readonly icon?: IconName;
  /** Only the icon is seen. */
  readonly iconOnly?: boolean;
  readonly small?: boolean;
  readonly kind?: "plain" | "quiet";
  readonly align?: "start" | "end";
  /** What opens; given a way to close it. */
  readonly children: (close: () => void) => ReactNode;
}

/** A button, and a small panel that it opens. Escape and a click beside it close it. */
export function Popover({ label, icon, iconOnly, small, kind = "plain", align = "start", children }: Props) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open) return undefined;
    const away = (event: Event) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("focusin", away);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("focusin", away);
    };
  }, [open]);
  const panel = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const shown = panel.current;
    if (open && shown) shown.style.translate = `${shiftInto(shown.getBoundingClientRect(), edges(shown))}px`;
  }, [open]);
  const close = () => {
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  return (
    // Escape anywhere inside closes it: the keys belong to what is inside.
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions
    <div
      className={styles.whole}
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        event.stopPropagation();
        close();
      }}
    >
      <Button kind={kind} small={small ?? false} {...(icon ? { icon } : {})} aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)} aria-label={iconOnly ? label : undefined} title={iconOnly ? label : undefined}>
        {iconOnly ? undefined : label}
      </Button>
      {open && (
        <div ref={panel} id={id} className={styles.panel} data-align={align} role="group" aria-label={label}>
          {/* It is called by what is inside, after the drawing. */}
          {/* eslint-disable-next-line react-hooks/refs */}
          {children(close)}
        </div>
      )}
    </div>
  );
}

interface Span {
  readonly left: number;
  readonly right: number;
}

/** Pixels at the edges of a page that stay free. */
const EDGE = 4;

/** What a panel may cover: the page, not the rail beside it. */
function edges(panel: Element): Span {
  return panel.closest("main")?.getBoundingClientRect() ?? { left: 0, right: innerWidth };
}

/** How far a panel moves to lie within the page; if it is too wide, only its start does. */
export function shiftInto(panel: Span, page: Span): number {
  const back = Math.min(0, page.right - EDGE - panel.right);
  const begin = page.left + EDGE - panel.left;
  return begin > back ? begin : back;
}
