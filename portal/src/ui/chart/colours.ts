// Replaces culori where Plotly imports it (see vite.config.ts): the same functions, with the colour spaces that
// figures use instead of all forty.
import { converter, formatHex, formatRgb, modeHsl, modeLrgb, modeRgb, useMode, wcagContrast, wcagLuminance } from "culori/fn";

// eslint-disable-next-line react-hooks/rules-of-hooks -- culori's word for `register`, no hook
for (const mode of [modeRgb, modeLrgb, modeHsl]) useMode(mode);

export { converter, formatHex, formatRgb, wcagContrast, wcagLuminance };
