import { FaultError } from "../api/client";
import { Coded } from "../ui/Coded";
import { Empty } from "../ui/Empty";
import { FaultBox } from "../ui/FaultBox";
import layout from "../ui/layout.module.css";
import { Skeleton } from "../ui/Skeleton";

interface Props {
  /** The page's subject: its heading is shown from the start. */
  readonly name: string;
  readonly fault: Error | null | undefined;
  readonly retry?: (() => void) | undefined;
  /** What is said where the portal knows of no such thing. */
  readonly missing?: { readonly title: string; readonly text: string } | undefined;
}

/** A page before what it shows has come, or where it cannot come. */
export function Pending({ name, fault, retry, missing }: Props) {
  const absent = missing && fault instanceof FaultError && fault.status === 404;
  return (
    <div className={layout.page}>
      <h1 className={fault && !absent ? undefined : "visually-hidden"}>{name}</h1>
      {absent ? <Empty title={missing.title}><Coded text={missing.text} /></Empty> : fault ? <FaultBox fault={fault} retry={retry} /> : <Skeleton lines={12} />}
    </div>
  );
}
