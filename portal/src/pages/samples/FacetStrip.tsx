import { Popover } from "../../ui";
import { count } from "../../ui/format";
import type { FacetGroup, FacetValue } from "./facets";
import styles from "./FacetStrip.module.css";

interface Props {
  readonly groups: readonly FacetGroup[];
  readonly chosen: (field: string, value: string) => boolean;
  readonly onTurn: (value: FacetValue) => void;
}

/** How many samples have what, to filter by; digits choose the first ones. */
export function FacetStrip({ groups, chosen, onTurn }: Props) {
  if (groups.length === 0) return null;
  const chip = (value: FacetValue) => (
    <FacetChip key={value.value} value={value} chosen={chosen(value.field, value.value)} onTurn={onTurn} />
  );
  return (
    <div className={styles["strip"]} role="group" aria-label="Facets">
      {groups.map((group) => (
        <div key={group.field} className={styles["group"]} role="group" aria-label={group.title}>
          <span className={styles["title"]}>{group.title}</span>
          {group.values.map(chip)}
          {group.more.length > 0 && (
            <Popover label={`${group.more.length} more`} kind="quiet" small>
              {() => <div className={styles["more"]}>{group.more.map(chip)}</div>}
            </Popover>
          )}
        </div>
      ))}
    </div>
  );
}

interface ChipProps {
  readonly value: FacetValue;
  readonly chosen: boolean;
  readonly onTurn: (value: FacetValue) => void;
}

function FacetChip({ value, chosen, onTurn }: ChipProps) {
  return (
    <button
      type="button"
      className={styles["chip"]}
      aria-pressed={chosen}
      aria-keyshortcuts={value.digit === null ? undefined : String(value.digit)}
      title={value.text}
      onClick={() => onTurn(value)}
    >
      {value.digit !== null && (
        <kbd className={styles["digit"]} aria-hidden="true">
          {value.digit}
        </kbd>
      )}
      <span className={styles["value"]}>{value.text}</span>
      <span className={styles["count"]}>{count(value.count)}</span>
    </button>
  );
}
