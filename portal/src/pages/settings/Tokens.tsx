import { useState } from "react";
import { useApi, useMutate } from "../../api";
import type { TokenRow } from "../../api/schema";
import { Ago, Button, type Column, Confirm, Empty, FaultBox, Moment, Panel, Skeleton, Table, toast } from "../../ui";
import { NewToken } from "./NewToken";
import styles from "./settings.module.css";

/** Tokens that scripts send as `Authorization: Bearer`. */
export function Tokens() {
  const { data, error, isPending, refetch } = useApi("/tokens", {});
  const { run, pending, fault } = useMutate("delete", "/tokens/{id}");
  const [making, setMaking] = useState(false);
  const [ending, setEnding] = useState<TokenRow | null>(null);
  const revoke = () => {
    if (!ending) return;
    run({ path: { id: ending.id } })
      .then(() => toast(`“${ending.name}” is revoked`))
      .catch(() => undefined)
      .finally(() => setEnding(null));
  };
  const columns: readonly Column<TokenRow>[] = [
    { id: "name", head: "Purpose", width: 200, grow: true, cell: (row) => row.name },
    { id: "scopes", head: "Scopes", width: 180, cell: (row) => row.scopes.join(", ") },
    { id: "created", head: "Created", width: 110, cell: (row) => <Ago time={row.created} /> },
    { id: "expires", head: "Expires", width: 170, cell: (row) => <Moment time={row.expires} /> },
    { id: "revoke", head: "Revoke", width: 110, align: "end", cell: (row) => <Button small kind="quiet" onClick={() => setEnding(row)} aria-label={`Revoke ${row.name}`}>Revoke</Button> },
  ];
  return (
    <Panel title="Tokens for scripts" actions={<Button icon="plus" onClick={() => setMaking(true)}>New token</Button>}>
      <p className={styles.soft}>
        A script sends one as <code>Authorization: Bearer …</code>. A script with the token can do all that the token allows, in your name.
      </p>
      <FaultBox fault={error ?? fault} retry={() => void refetch()} />
      {isPending && <Skeleton />}
      {data && (data.length ? <Table label="Tokens" rows={data} columns={columns} rowKey={(row) => row.id} height="fit" /> : <Empty title="No tokens">Browsers need none.</Empty>)}
      {making && <NewToken onClose={() => setMaking(false)} />}
      <Confirm open={ending !== null} title={`Revoke “${ending?.name ?? ""}”?`} action="Revoke" danger busy={pending} onConfirm={revoke} onClose={() => setEnding(null)}>
        <p>The portal refuses scripts that use this token from now on. You cannot undo this.</p>
      </Confirm>
    </Panel>
  );
}
