declare module "plotly.js/lib/*" {
  const module: unknown;
  export default module;
}

declare module "culori/fn" {
  export const converter: unknown;
  export const formatHex: unknown;
  export const formatRgb: unknown;
  export const modeHsl: unknown;
  export const modeLrgb: unknown;
  export const modeRgb: unknown;
  export const wcagContrast: unknown;
  export const wcagLuminance: unknown;
  export function useMode(mode: unknown): unknown;
}
