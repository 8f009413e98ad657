// Replaces the parts of Plotly that no figure of ours has (see vite.config.ts): a component that does nothing.
export const moduleType = "component";
export const name = "none";
