import { Link } from "@tanstack/react-router";
import { useApi } from "../../api";
import { Popover, Skeleton } from "../../ui";
import { type DefinitionKind, ONE } from "../plan/kinds";
import styles from "./plans.module.css";

/** Starts a new definition with one of the starters; nothing is written before it is saved. */
export function NewButton({ kind }: { readonly kind: DefinitionKind }) {
  return (
    <Popover label={`New ${ONE[kind]}`} icon="plus" align="end">
      {(close) => <Starters kind={kind} close={close} />}
    </Popover>
  );
}

function Starters({ kind, close }: { readonly kind: DefinitionKind; readonly close: () => void }) {
  const found = useApi("/definitions/starters", { query: { kind } }, { fresh: Infinity });
  if (!found.data) return <Skeleton />;
  const starters = [...found.data.map(({ name, title }) => ({ name, title })), ...(found.data.length === 0 ? [{ name: "", title: "Empty" }] : [])];
  return (
    <ul className={styles.starters}>
      {starters.map(({ name, title }) => (
        <li key={name}>
          <Link to="/plans/$definition" params={{ definition: "new" }} search={{ kind, ...(name ? { starter: name } : {}) } as never} onClick={close}>
            {title}
          </Link>
        </li>
      ))}
    </ul>
  );
}
