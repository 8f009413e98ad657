/**
 * What React puts into a page, seen from its compiled JSX: every text passes `visible`, so that no component can
 * forget it. Values of inputs and addresses stay as they are: they are sent, not only shown.
 */

import { visible } from "../ui/visible";

/** Attributes that people read or hear. */
const READ = ["title", "alt", "placeholder", "aria-label", "aria-description", "aria-valuetext", "label"] as const;

type Props = Readonly<Record<string, unknown>>;

/** Properties of an element of the page, its texts made visible; of a component, as they are. */
export function shown(type: unknown, props: Props): Props {
  if (typeof type !== "string" || type === "textarea") return props;
  const changed: [string, unknown][] = [["children", child(props["children"])]];
  for (const name of READ) if (typeof props[name] === "string") changed.push([name, visible(props[name])]);
  const other = changed.filter(([name, value]) => value !== props[name]);
  return other.length === 0 ? props : { ...props, ...Object.fromEntries(other) };
}

function child(value: unknown): unknown {
  if (typeof value === "string") return visible(value);
  if (!Array.isArray(value)) return value;
  const children = value.map((one: unknown) => (typeof one === "string" || Array.isArray(one) ? child(one) : one));
  return children.some((one, at) => one !== value[at]) ? children : value;
}
