import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ask, FaultError, send, useMutate } from "../../api";
import type { Definition, DefinitionRow } from "../../api/schema";
import { toast } from "../../ui";
import { keepDraft } from "./draft";
import type { DefinitionKind } from "./kinds";
import type { EditedText } from "./use-text";

export type OpenDialog = "none" | "name" | "conflict" | "delete" | "submit";

export interface Actions {
  readonly dialog: OpenDialog;
  readonly fault: Error | null;
  readonly busy: boolean;
  /** What another client saved meanwhile. */
  readonly theirs: Definition | null;
  readonly open: (dialog: OpenDialog) => void;
  readonly save: () => Promise<void>;
  /** Saves over what another client saved. */
  readonly overwrite: () => Promise<void>;
  /** Takes what another client saved. */
  readonly takeTheirs: () => void;
  readonly create: (name: string) => Promise<void>;
  readonly remove: () => Promise<void>;
  readonly download: () => void;
  readonly duplicate: () => void;
}

interface Given {
  readonly row: DefinitionRow | null;
  readonly kind: DefinitionKind;
  readonly edited: EditedText;
}

/** Everything that is done to a definition. */
export function useActions({ row, kind, edited }: Given): Actions {
  const navigate = useNavigate();
  const client = useQueryClient();
  const writing = useMutate("put", "/definitions/{id}");
  const making = useMutate("post", "/definitions");
  const [dialog, setDialog] = useState<OpenDialog>("none");
  const [theirs, setTheirs] = useState<Definition | null>(null);
  const [fault, setFault] = useState<Error | null>(null);

  const write = async (etag: string) => {
    if (!row) return;
    const { text } = edited;
    try {
      const found = await writing.run({ path: { id: row.id }, body: { text }, headers: { "If-Match": etag } });
      edited.settle({ text, etag: found.etag });
      setFault(null);
      setDialog("none");
      toast(`Saved ${row.name}`);
    } catch (error) {
      if (!(error instanceof FaultError) || error.status !== 412) {
        setFault(error as Error);
        return;
      }
      setTheirs(await ask("/definitions/{id}", { path: { id: row.id } }));
      setDialog("conflict");
    }
  };

  const again = async (name: string, text: string) => {
    const found = await making.run({ body: { kind, name, text } });
    // Nothing is unsaved any more: leaving asks no question, and no draft stays.
    edited.settle({ text: edited.text, etag: found.etag });
    await navigate({ to: "/plans/$definition", params: { definition: found.row.id }, search: {} as never });
  };

  return {
    dialog,
    fault,
    busy: writing.pending || making.pending,
    theirs,
    open: (next) => {
      setFault(null);
      setDialog(next);
    },
    save: async () => {
      if (!row) setDialog("name");
      else if (row.writable && edited.dirty) await write(edited.saved.etag);
    },
    overwrite: async () => {
      if (theirs) await write(theirs.etag);
    },
    takeTheirs: () => {
      if (theirs) edited.settle({ text: theirs.text, etag: theirs.etag }, theirs.text);
      setDialog("none");
    },
    create: async (name) => {
      try {
        await again(name, edited.text);
        keepDraft(`new ${kind}`, null);
        toast(`Saved ${name}`);
      } catch (error) {
        setFault(error as Error);
      }
    },
    remove: async () => {
      if (!row) return;
      const { text, etag } = edited.saved;
      try {
        await send("delete", "/definitions/{id}", { path: { id: row.id } }, undefined, { "If-Match": etag });
      } catch (error) {
        setFault(error as Error);
        return;
      }
      keepDraft(row.id, null);
      edited.settle({ text: edited.text, etag });
      toast({ text: `Deleted ${row.name}`, undo: () => void again(row.name, text) });
      await navigate({ to: "/plans" });
      // Not before: this page would ask for what is gone.
      void client.invalidateQueries({ queryKey: ["api", "/definitions"] });
    },
    download: () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([edited.text], { type: "application/yaml" }));
      link.download = `${(row?.name ?? nameIn(edited.text) ?? kind).replaceAll("/", "-")}.yaml`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    },
    duplicate: () => {
      if (row) void navigate({ to: "/plans/$definition", params: { definition: "new" }, search: { from: row.id, name: `${row.name}-copy` } as never });
    },
  };
}

/** The name that a text gives its definition; null: none. */
function nameIn(text: string): string | null {
  return /^name: *["']?([A-Za-z0-9][\w./-]*)/m.exec(text)?.[1] ?? null;
}
