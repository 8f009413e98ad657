import { Pending } from "./Pending";

/** A page that broke: the other pages still work. A page whose code is gone was built again: loading again helps. */
export function PageFault({ error, reset }: { readonly error: unknown; readonly reset?: () => void }) {
  const fault = error instanceof Error ? error : new Error("This page failed. Reload it.");
  const gone = /dynamically imported module|importing a module/i.test(fault.message);
  const again = gone ? () => location.reload() : reset;
  return (
    <Pending name="This page cannot be shown" fault={gone ? new Error("This page could not be loaded: the portal has stopped or was updated. Try again.") : fault} retry={again} />
  );
}
