import { type ReactNode, useEffect, useRef, useState } from "react";
import { FaultError, post, useApi } from "../../api";
import type { ServedRow } from "../../api/schema";
import { usePlace } from "../../app/place";
import { useSession } from "../../app/session";
import { usePageTitle } from "../../app/title";
import { Ago, Button, Command, Empty, FaultBox, Field, NumberField, Panel, Select, Skeleton, useHotkeys } from "../../ui";
import { duration } from "../../ui/format";
import { type AnswerSoFar, follow, NOTHING } from "./answer";
import { DropZone } from "./DropZone";
import { MakeRunTask } from "./MakeRunTask";
import type { PageImage } from "./pages";
import { Ends, ServeJobs, StartModel, StopModel } from "./Serving";
import layout from "../../ui/layout.module.css";
import styles from "./playground.module.css";

const EVERY = 5_000;

/** One page, one prompt, one model that is being served: what does it answer? */
export default function PlaygroundPage() {
  usePageTitle("Playground");
  const found = useApi("/playground/served", {}, { every: EVERY });
  const { session } = useSession();
  const ready = found.data?.filter(({ state }) => state === "ready") ?? [];
  const others = found.data?.filter(({ state }) => state !== "ready") ?? [];
  return (
    <div className={layout.page}>
      <div className={layout.bar}>
        <h1>Playground</h1>
        {session?.may_submit && <StartModel />}
      </div>
      {found.error && <FaultBox fault={found.error} retry={() => void found.refetch()} />}
      {session?.may_submit === false ? (
        <Empty title="This portal only shows">Start it with <code>--allow-submit</code> to send questions to a model.</Empty>
      ) : !found.data ? (
        !found.error && <Skeleton lines={8} />
      ) : (
        <>
          <ServeJobs rows={others} />
          <Bench served={ready} without={others.length === 0 && <NoModel />} />
        </>
      )}
    </div>
  );
}

function NoModel() {
  return (
    <Panel title="No model is served">
      <div className={layout.stack}>
        <p>Start one here or in a terminal; this page finds it when it is ready. Its answers go nowhere else, and nothing is kept.</p>
        <Command title="On this host, until Ctrl-C" text="hpcbench serve tiny-vlm" />
        <Command title="In a job, as the button does" text="hpcbench serve tiny-vlm --job" />
      </div>
    </Panel>
  );
}

/** Asks a model. While there is none, it shows `without`, and keeps the question. */
function Bench({ served, without }: { readonly served: readonly ServedRow[]; readonly without: ReactNode }) {
  const { search, update } = usePlace("/playground");
  const one = served.find(({ id }) => id === search.served) ?? served[0];
  const [page, setPage] = useState<PageImage | null>(null);
  const [system, setSystem] = useState("");
  const [prompt, setPrompt] = useState("Read the text of this page.");
  const [maxTokens, setMaxTokens] = useState(512);
  const [temperature, setTemperature] = useState(0);
  const { answer, asking, fault, ask, stop } = useAnswer();
  const go = () => {
    if (one?.reachable && prompt.trim() !== "") void ask({ served: one.id, system, prompt, images: page ? [page.uri] : [], max_tokens: maxTokens, temperature });
  };
  useHotkeys({ "mod+Enter": ["ask", go] }, "Playground");
  const shown = answer && <Answer answer={answer} asking={asking} />;
  if (!one) {
    return (
      <div className={layout.stack}>
        {without}
        {shown}
      </div>
    );
  }
  return (
    <div className={styles.bench}>
      <Panel title="Page">
        <DropZone page={page} onPage={setPage} />
      </Panel>
      <div className={layout.stack}>
        <Panel title="Question" actions={<MakeRunTask tried={{ model: one.model, system, prompt, maxTokens, temperature }} />}>
          <div className={layout.stack}>
            <div className={layout.row}>
              <Select label="Served model" value={one.id} options={served.map((each) => ({ value: each.id, label: `${each.model} on ${each.host}` }))} onChange={(id) => update({ served: id }, { replace: true })} />
              <span className={layout.soft}>
                {one.engine}, ready <Ago time={one.started} />
                <Ends row={one} />
              </span>
              <StopModel row={one} />
            </div>
            {!one.reachable && <p className={layout.soft}>It is served on {one.host} without a port; start it again with <code>{`--port PORT --host ${one.host}`}</code>.</p>}
            <details>
              <summary>System message{system ? " (set)" : ""}</summary>
              <textarea className={styles.text} aria-label="System message" rows={3} value={system} onChange={(event) => setSystem(event.target.value)} />
            </details>
            <Field label="Prompt">{(id) => <textarea id={id} className={styles.text} rows={5} value={prompt} onChange={(event) => setPrompt(event.target.value)} />}</Field>
            <div className={styles.numbers}>
              <NumberField label="Max tokens" value={maxTokens} min={1} onChange={(value) => value !== null && setMaxTokens(value)} />
              <NumberField label="Temperature" value={temperature} min={0} step={0.1} onChange={(value) => value !== null && setTemperature(value)} />
            </div>
            <div className={layout.row}>
              <Button kind="primary" icon="play" disabled={asking || !one.reachable || prompt.trim() === ""} onClick={go} title="Ctrl+Enter">
                {asking ? "Asking…" : "Ask"}
              </Button>
              {asking && <Button icon="stop" onClick={stop}>Stop</Button>}
            </div>
            <FaultBox fault={fault} />
          </div>
        </Panel>
        {shown}
      </div>
    </div>
  );
}

interface Question {
  readonly served: string;
  readonly system: string;
  readonly prompt: string;
  readonly images: readonly string[];
  readonly max_tokens: number;
  readonly temperature: number;
}

/** The answer to the last question, as far as it has come. */
function useAnswer() {
  const [answer, setAnswer] = useState<AnswerSoFar | null>(null);
  const [asking, setAsking] = useState(false);
  const [fault, setFault] = useState<Error | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const ask = async (question: Question) => {
    running.current?.abort();
    const control = new AbortController();
    running.current = control;
    setFault(null);
    setAnswer(NOTHING);
    setAsking(true);
    const start = performance.now();
    try {
      const response = await post("/playground/questions", {}, JSON.stringify(question), "application/json", control.signal);
      if (response.body) await follow(response.body, start, setAnswer);
    } catch (error) {
      if (!control.signal.aborted) setFault(error instanceof FaultError ? error : new Error("the connection broke"));
    } finally {
      if (running.current === control) setAsking(false);
    }
  };
  return { answer, asking, fault, ask, stop: () => running.current?.abort() };
}

function Answer({ answer, asking }: { readonly answer: AnswerSoFar; readonly asking: boolean }) {
  const facts = [
    answer.first === null ? "" : `first text after ${duration(answer.first / 1000)}`,
    answer.took > 0 ? `${duration(answer.took / 1000)} in all` : "",
    answer.promptTokens === null ? "" : `${answer.promptTokens} tokens of prompt`,
    answer.tokens === null ? "" : `${answer.tokens} tokens of answer`,
    answer.reason === "length" ? "cut at max tokens" : "",
  ].filter(Boolean);
  return (
    <Panel title="Answer">
      <div className={layout.stack} aria-live="polite" aria-busy={asking}>
        {answer.reasoning && (
          <details>
            <summary>Reasoning</summary>
            <pre className={styles.answer}>{answer.reasoning}</pre>
          </details>
        )}
        <pre className={styles.answer}>{answer.text || (asking ? "…" : "")}</pre>
        {answer.error && <p role="alert">The answer broke off: {answer.error}</p>}
        <p className={layout.soft}>{facts.join(" · ")}</p>
      </div>
    </Panel>
  );
}
