import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { send } from "../../api";
import { useSession } from "../../app/session";
import { Button, Dialog, FaultBox, Field } from "../../ui";
import type { Tried } from "./definitions";
import layout from "../../ui/layout.module.css";

/** Saves the prompt and a plan with it, and opens the plan. */
export function MakeRunTask({ tried }: { readonly tried: Tried }) {
  const { session } = useSession();
  const navigate = useNavigate();
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("from-playground");
  const [fault, setFault] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const make = async () => {
    setBusy(true);
    setFault(null);
    try {
      const { planText, promptText } = await import("./definitions");
      await send("post", "/definitions", {}, { kind: "prompts", name, text: promptText(name, tried) });
      const plan = await send("post", "/definitions", {}, { kind: "plans", name, text: planText(name, tried) });
      await navigate({ to: "/plans/$definition", params: { definition: plan.row.id }, search: {} as never });
    } catch (error) {
      setFault(error as Error);
      setBusy(false);
    }
  };
  return (
    <>
      <Button small icon="plans" disabled={session?.may_edit === false} title={session?.may_edit === false ? "To save, restart the portal with --allow-edit" : undefined} onClick={() => setOpen(true)}>
        Make it a run task
      </Button>
      <Dialog
        open={open}
        title="Make it a run task"
        onClose={() => setOpen(false)}
        actions={
          <>
            <Button onClick={() => setOpen(false)}>Cancel</Button>
            <Button kind="primary" disabled={busy || !/^[A-Za-z0-9][\w.-]*$/.test(name)} onClick={() => void make()}>
              Save both
            </Button>
          </>
        }
      >
        <div className={layout.stack}>
          <p>Saves the prompt as a definition, and a plan that asks {tried.model} with it; you choose its dataset next.</p>
          <Field label="Name of both" hint={`registries/prompts/${name || "NAME"}.yaml and ${name || "NAME"}.yaml in your folder of plans.`}>
            {(id, described) => <input id={id} aria-describedby={described} value={name} onChange={(event) => setName(event.target.value.trim())} />}
          </Field>
          <FaultBox fault={fault} />
        </div>
      </Dialog>
    </>
  );
}
