import { useState } from "react";
import { useMutate } from "../../api";
import type { ExperimentRow } from "../../api/schema";
import { CommandLog } from "../../parts/CommandLog";
import { Button, Command, Confirm, FaultBox, Popover } from "../../ui";
import layout from "../../ui/layout.module.css";
import { type Action, ACTIONS, actionsOf } from "./commands";

/** Pauses, resumes, cancels or scores an experiment, once the user has confirmed it. */
export function Actions({ row }: { readonly row: ExperimentRow }) {
  const [asked, setAsked] = useState<Action | null>(null);
  const [running, setRunning] = useState<{ readonly id: string; readonly action: Action } | null>(null);
  const begin = useMutate("post", "/submissions/actions");
  const actions = actionsOf(row);
  const close = () => {
    begin.reset();
    setAsked(null);
  };
  const confirm = (action: Action) => {
    void begin
      .run({ body: { experiment: row.id, action } })
      .then(({ submission }) => {
        setRunning({ id: submission, action });
        setAsked(null);
      })
      .catch(() => undefined);
  };
  return (
    <>
      <Popover label="Actions" icon="play" align="end">
        {(shut) => (
          <ul className={layout.stack}>
            {actions.map((action) => (
              <li key={action}>
                <Button
                  kind={action === "cancel" ? "danger" : "plain"}
                  title={ACTIONS[action].effect}
                  onClick={() => {
                    setAsked(action);
                    shut();
                  }}
                >
                  {ACTIONS[action].word}
                </Button>
              </li>
            ))}
          </ul>
        )}
      </Popover>
      {asked && (
        <Confirm open title={`${ACTIONS[asked].word}: ${row.plan}?`} action={ACTIONS[asked].word} back="Back" danger={asked === "cancel"} busy={begin.pending} onClose={close} onConfirm={() => confirm(asked)}>
          <div className={layout.stack}>
            <p>{ACTIONS[asked].effect}</p>
            <Command title="The portal runs, under your account on its host" text={ACTIONS[asked].command(row.id)} />
            <FaultBox fault={begin.fault} />
          </div>
        </Confirm>
      )}
      {running && <CommandLog id={running.id} verb={running.action} titles={titlesOf(running.action, row.plan)} onClose={() => setRunning(null)} />}
    </>
  );
}

function titlesOf(action: Action, plan: string) {
  const { word } = ACTIONS[action];
  return { running: `${word}: ${plan} …`, done: `${word}: ${plan}: done`, failed: `${word}: ${plan}: failed` };
}
