import type { CommandLine } from "../api/schema";
import { Command } from "../ui";
import layout from "../ui/layout.module.css";

/** Commands to copy; the portal runs none of them. */
export function Commands({ commands }: { readonly commands: readonly CommandLine[] }) {
  return (
    <div className={layout.stack}>
      {commands.map((one) => (
        <Command key={one.title + one.text} title={one.title} text={one.text} />
      ))}
    </div>
  );
}
