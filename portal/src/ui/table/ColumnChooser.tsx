import { Button } from "../Button";
import { Toggle } from "../Field";
import { Popover } from "../Popover";
import { type Column, shownColumns } from "./types";

interface Props<Row> {
  readonly columns: readonly Column<Row>[];
  readonly chosen: readonly string[];
  readonly onChoose: (chosen: readonly string[]) => void;
}

/** Which columns are shown. */
export function ColumnChooser<Row>({ columns, chosen, onChoose }: Props<Row>) {
  const shown = shownColumns(columns, chosen).map((column) => column.id);
  return (
    <Popover label="Columns" icon="columns" align="end">
      {() => (
        <>
          <ul>
            {columns.slice(1).map(({ id, head }) => (
              <li key={id}>
                <Toggle label={head} checked={shown.includes(id)} onChange={(on) => onChoose(columns.map((one) => one.id).filter((one) => (one === id ? on : shown.includes(one))))} />
              </li>
            ))}
          </ul>
          <Button small kind="quiet" disabled={chosen.length === 0} onClick={() => onChoose([])}>
            Reset
          </Button>
        </>
      )}
    </Popover>
  );
}
