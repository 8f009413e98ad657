import { Button } from "../ui/Button";
import { setLook, useLook } from "../ui/look";

const NEXT = { system: "light", light: "dark", dark: "system" } as const;
const ICONS = { system: "screen", light: "sun", dark: "moon" } as const;

/** Light, dark, or as the system has it. */
export function ThemeButton() {
  const { theme } = useLook();
  return <Button kind="quiet" icon={ICONS[theme]} aria-label={`Theme: ${theme}. Change to ${NEXT[theme]}`} onClick={() => setLook({ theme: NEXT[theme] })} />;
}
