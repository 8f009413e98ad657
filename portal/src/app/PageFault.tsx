import { FaultBox } from "../ui/FaultBox";
import layout from "../ui/layout.module.css";

/** A page that broke: the others go on. A page whose code is gone was built anew: loading again helps. */
export function PageFault({ error, reset }: { readonly error: unknown; readonly reset?: () => void }) {
  const fault = error instanceof Error ? error : new Error("This page broke.");
  const gone = /dynamically imported module|importing a module/i.test(fault.message);
  const again = gone ? () => location.reload() : reset;
  return (
    <div className={layout.page}>
      <FaultBox fault={gone ? new Error("This page could not be loaded: the portal is gone, or was updated.") : fault} retry={again} />
    </div>
  );
}
