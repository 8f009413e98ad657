import { Pending } from "./Pending";

/** A page that broke: the others go on. A page whose code is gone was built anew: loading again helps. */
export function PageFault({ error, reset }: { readonly error: unknown; readonly reset?: () => void }) {
  const fault = error instanceof Error ? error : new Error("This page broke.");
  const gone = /dynamically imported module|importing a module/i.test(fault.message);
  const again = gone ? () => location.reload() : reset;
  return (
    <Pending name="This page cannot be shown" fault={gone ? new Error("This page could not be loaded: the portal is gone, or was updated.") : fault} retry={again} />
  );
}
