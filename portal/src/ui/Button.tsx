import type { ButtonHTMLAttributes } from "react";
import { Icon, type IconName } from "./Icon";
import { join } from "./join";
import styles from "./Button.module.css";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly kind?: "plain" | "primary" | "danger" | "quiet";
  readonly small?: boolean;
  readonly icon?: IconName;
}

/** A button; one with an icon alone needs an `aria-label`. */
export function Button({ kind = "plain", small, icon, className, children, type = "button", title, ...rest }: Props) {
  const alone = icon !== undefined && !children;
  return (
    <button
      type={type}
      className={join(styles.button, styles[kind], small && styles.small, alone && styles.alone, className)}
      title={title ?? (alone ? rest["aria-label"] : undefined)}
      {...rest}
    >
      {icon && <Icon name={icon} size={small ? 13 : 15} />}
      {children}
    </button>
  );
}
