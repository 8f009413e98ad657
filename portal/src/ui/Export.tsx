import { address } from "../api/client";
import type { AnyParams } from "../api/types";
import { isBundle } from "../api/bundle";
import { Icon } from "./Icon";
import { Popover } from "./Popover";
import styles from "./Export.module.css";

const FORMATS = ["csv", "json", "parquet"] as const;

interface Props {
  /** A route that takes `format`, and what is asked of it: what is seen is what is exported. */
  readonly path: string;
  readonly params: AnyParams;
  readonly label?: string;
}

/** Takes what is seen away as CSV, JSON or Parquet. */
export function Export({ path, params, label = "Export" }: Props) {
  if (isBundle()) return null;
  return (
    <Popover label={label} icon="export" align="end">
      {(close) => (
        <ul className={styles.list}>
          {FORMATS.map((format) => (
            <li key={format}>
              <a className={styles.link} href={address(path, { ...params, query: { ...params.query, format } })} download onClick={close}>
                <Icon name="export" size={14} />
                {format === "parquet" ? "Parquet" : format.toUpperCase()}
              </a>
            </li>
          ))}
        </ul>
      )}
    </Popover>
  );
}
