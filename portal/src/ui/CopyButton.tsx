import { useEffect, useState } from "react";
import { Button } from "./Button";
import { copyText } from "./copy";

interface Props {
  readonly text: string;
  /** What is copied; without it the button is an icon. */
  readonly label?: string;
}

/** Copies a text, and says so. */
export function CopyButton({ text, label }: Props) {
  const [state, setState] = useState<"ready" | "copied" | "failed">("ready");
  useEffect(() => {
    if (state === "ready") return undefined;
    const timer = setTimeout(() => setState("ready"), 1600);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = () => void copyText(text).then((done) => setState(done ? "copied" : "failed"));
  const said = { ready: label ?? "", copied: label === undefined ? "" : "Copied", failed: "Not copied" }[state];
  return (
    <Button kind="quiet" small icon={state === "copied" ? "check" : "copy"} onClick={copy} aria-label={label === undefined ? (state === "copied" ? "Copied" : "Copy") : undefined}>
      {said}
      <span role="status" className="visually-hidden">
        {state === "copied" ? "Copied" : ""}
      </span>
    </Button>
  );
}
