import { lazy, type ReactNode, Suspense } from "react";
import { usePlace } from "../../app/place";
import { Skeleton, Tabs } from "../../ui";
import type { DefinitionKind } from "./kinds";
import type { EditedText } from "./use-text";
import styles from "./plan.module.css";

const PlanForm = lazy(() => import("./form/PlanForm"));

const SIDES = [
  { id: "form", label: "Form" },
  { id: "sections", label: "Sections" },
] as const;

interface Props {
  readonly kind: DefinitionKind;
  readonly edited: EditedText;
  readonly readOnly: boolean;
  /** The sections of the text. */
  readonly children: ReactNode;
}

/** Beside the text: its sections, and the form of a plan. */
export function Beside({ kind, edited, readOnly, children }: Props) {
  const { search, update } = usePlace("/plans/$definition");
  if (kind !== "plans") return <div className={styles.beside} data-plain>{children}</div>;
  return (
    <div className={styles.beside}>
      <Tabs label="Beside the text" tabs={SIDES} current={search.side} onChange={(side) => update({ side }, { replace: true })}>
        {search.side === "sections" ? (
          children
        ) : (
          <Suspense fallback={<Skeleton lines={10} />}>
            <PlanForm text={edited.text} readOnly={readOnly} onText={edited.replace} />
          </Suspense>
        )}
      </Tabs>
    </div>
  );
}
