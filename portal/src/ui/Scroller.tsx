import type { ReactNode } from "react";

interface Props {
  /** What is in it, for those who do not see it. */
  readonly label: string;
  readonly className?: string | undefined;
  readonly children: ReactNode;
}

/** What is wider than the page and scrolls by itself, by keyboard too. */
export function Scroller({ label, className, children }: Props) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keyboard
    <div className={className} tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}
