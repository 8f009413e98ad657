import { FaultError } from "../api/client";
import { Button } from "./Button";
import { Coded } from "./Coded";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import styles from "./FaultBox.module.css";

interface Props {
  readonly fault: Error | null | undefined;
  readonly retry?: (() => void) | undefined;
}

/** What went wrong, what to do about it, and the number under which the portal's log has it. */
export function FaultBox({ fault, retry }: Props) {
  if (!fault) return null;
  const told = fault instanceof FaultError ? fault.fault : null;
  return (
    <div className={styles.box} role="alert">
      <Icon name="warning" />
      <div className={styles.text}>
        <p className={styles.error}><Coded text={fault.message || "Something went wrong."} /></p>
        {told?.remedy && <p className={styles.remedy}><Coded text={told.remedy} /></p>}
        {told?.id && (
          <p className={styles.id}>
            <span>
              Number in the portal&apos;s log: <code>{told.id}</code>
            </span>
            <CopyButton text={told.id} />
          </p>
        )}
      </div>
      {retry && (
        <Button small icon="reload" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}
