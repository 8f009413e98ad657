import { useState } from "react";
import { useApi, useMutate } from "../../api";
import type { Choice, ServedRow, Submitted } from "../../api/schema";
import { CommandLog } from "../../parts/CommandLog";
import { Ago, Button, Command, Confirm, FaultBox, Panel, Select, Skeleton, StateChip, useNow } from "../../ui";
import { duration } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./playground.module.css";

const MINUTES = ["30", "60", "120", "240", "480"] as const;

/** A command that runs, and what it is called. */
interface Running {
  readonly id: string;
  readonly titles: Readonly<Record<Submitted["state"], string>>;
}

/** Starts a job that serves a model, once the user has confirmed it. */
export function StartModel() {
  const [open, setOpen] = useState(false);
  const [running, setRunning] = useState<Running | null>(null);
  return (
    <>
      <Button icon="play" onClick={() => setOpen(true)}>
        Start a model
      </Button>
      {open && (
        <StartDialog
          onClose={() => setOpen(false)}
          onStarted={(id, model) => {
            setOpen(false);
            setRunning({ id, titles: { running: `Starting ${model} …`, done: `${model}: its job is submitted`, failed: `${model}: not started` } });
          }}
        />
      )}
      {running && <CommandLog id={running.id} verb="serve" titles={running.titles} onClose={() => setRunning(null)} />}
    </>
  );
}

function StartDialog({ onClose, onStarted }: { readonly onClose: () => void; readonly onStarted: (command: string, model: string) => void }) {
  const choices = useApi("/definitions/choices", {});
  const begin = useMutate("post", "/playground/served");
  const [name, setName] = useState("");
  const [minutes, setMinutes] = useState<string>("60");
  const models = (choices.data ?? []).filter((one) => one.kind === "models" && !one.fault);
  const model = models.find((one) => one.name === name) ?? models[0];
  const confirm = () => {
    if (!model) return;
    void begin
      .run({ body: { model: model.name, minutes: Number(minutes) } })
      .then(({ submission }) => onStarted(submission, model.name))
      .catch(() => undefined);
  };
  return (
    <Confirm open title="Start a model in a job" action="Start" busy={begin.pending || !model} onClose={onClose} onConfirm={confirm}>
      <div className={layout.stack}>
        <FaultBox fault={choices.error} />
        {!choices.data && !choices.error && <Skeleton lines={2} />}
        {choices.data && !model && <p>The registries have no valid model.</p>}
        {model && (
          <>
            <div className={layout.row}>
              <Select label="Model" value={model.name} options={models.map((one) => ({ value: one.name }))} onChange={setName} />
              <Select label="Time limit" value={minutes} options={MINUTES.map((one) => ({ value: one, label: `for ${duration(Number(one) * 60)}` }))} onChange={setMinutes} />
            </div>
            <p className={layout.soft}>{figuresOf(model)}</p>
            <p>The job holds its GPUs until its time limit, or until you stop it here. Weights and image are fetched first.</p>
            <Command title="The portal runs, under your account on its host" text={`hpcbench serve ${quoted(model.name)} --job --time-limit ${clock(Number(minutes))}`} />
          </>
        )}
        <FaultBox fault={begin.fault} />
      </div>
    </Confirm>
  );
}

/** What decides whether a model can start now. */
function figuresOf(model: Choice): string {
  const gpus = model.gpus ?? 0;
  const facts = [
    model.engine,
    gpus === 0 ? "no GPU" : gpus === 1 ? "1 GPU" : `${gpus} GPUs`,
    model.gpu_memory_gb ? `${model.gpu_memory_gb} GB of GPU memory${gpus > 1 ? " each" : ""}` : "",
    model.parameters_b ? `${model.parameters_b} B parameters` : "",
    model.size_gb ? `${model.size_gb} GB of files` : "",
  ];
  return facts.filter(Boolean).join(" · ");
}

/** Jobs whose model cannot answer yet, or never will. */
export function ServeJobs({ rows }: { readonly rows: readonly ServedRow[] }) {
  if (rows.length === 0) return null;
  return (
    <Panel title="Jobs">
      <ul className={layout.stack}>
        {rows.map((row) => (
          <li key={row.id} className={layout.tight}>
            <div className={layout.row}>
              <StateChip state={STATES[row.state]} />
              <strong>{row.model}</strong>
              <span className={layout.soft}>
                {row.engine}, submitted <Ago time={row.started} />
              </span>
              <StopModel row={row} />
            </div>
            {row.why && <p className={layout.wrap}>{row.why}</p>}
            {row.log.length > 0 && (
              <details open={row.state === "failed"}>
                <summary>{row.log.at(-1)}</summary>
                <pre className={styles.answer}>{row.log.join("\n")}</pre>
              </details>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const STATES = { waiting: "pending", starting: "loading", ready: "running", failed: "unserved" } as const;

/** When its time limit ends a served model. */
export function Ends({ row }: { readonly row: ServedRow }) {
  const now = useNow();
  return row.ends == null ? null : <>, ends in {duration(Math.max(0, row.ends - now))}</>;
}

/** Ends the job of a model, once the user has confirmed it. */
export function StopModel({ row }: { readonly row: ServedRow }) {
  const [asked, setAsked] = useState(false);
  const [running, setRunning] = useState<Running | null>(null);
  const begin = useMutate("delete", "/playground/served/{id}");
  if (!row.is_job) return null;
  const word = row.state === "failed" ? "Remove" : "Stop model";
  const confirm = () => {
    void begin
      .run({ path: { id: row.id } })
      .then(({ submission }) => {
        setAsked(false);
        setRunning({ id: submission, titles: { running: `Stopping ${row.model} …`, done: `${row.model}: stopped`, failed: `${row.model}: not stopped` } });
      })
      .catch(() => undefined);
  };
  return (
    <>
      <Button small icon="stop" onClick={() => setAsked(true)}>
        {word}
      </Button>
      {asked && (
        <Confirm open title={`${word}: ${row.model}?`} action={word} back="Back" danger busy={begin.pending} onClose={() => setAsked(false)} onConfirm={confirm}>
          <div className={layout.stack}>
            <p>{row.state === "failed" ? "Its log goes, too." : "Its job ends, and an answer that is on its way breaks off."}</p>
            <Command title="The portal runs, under your account on its host" text={`hpcbench serve ${row.id} --stop`} />
            <FaultBox fault={begin.fault} />
          </div>
        </Confirm>
      )}
      {running && <CommandLog id={running.id} verb="serve" titles={running.titles} onClose={() => setRunning(null)} />}
    </>
  );
}

/** Minutes as a time limit of Slurm. */
function clock(minutes: number): string {
  const two = (number: number) => String(number).padStart(2, "0");
  return `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}:00`;
}

/** A word for a shell. */
function quoted(word: string): string {
  return /^[\w.\-/]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
