import { Link } from "@tanstack/react-router";
import { useApi } from "../../api";
import { Popover, Skeleton } from "../../ui";
import { type DocumentKind, ONE } from "../plan/kinds";
import styles from "./plans.module.css";

/** Begins a new document with one of the starters; nothing is written before it is saved. */
export function NewButton({ kind }: { readonly kind: DocumentKind }) {
  return (
    <Popover label={`New ${ONE[kind]}`} icon="plus" align="end">
      {(close) => <Starters kind={kind} close={close} />}
    </Popover>
  );
}

function Starters({ kind, close }: { readonly kind: DocumentKind; readonly close: () => void }) {
  const found = useApi("/documents/starters", { query: { kind } }, { fresh: Infinity });
  if (!found.data) return <Skeleton />;
  const starters = [...found.data.map(({ name, title }) => ({ name, title })), ...(found.data.length === 0 ? [{ name: "", title: "Empty" }] : [])];
  return (
    <ul className={styles.starters}>
      {starters.map(({ name, title }) => (
        <li key={name}>
          <Link to="/plans/$document" params={{ document: "new" }} search={{ kind, ...(name ? { starter: name } : {}) } as never} onClick={close}>
            {title}
          </Link>
        </li>
      ))}
    </ul>
  );
}
