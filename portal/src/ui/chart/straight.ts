// Replaces the layout of circular flows: our flows go from one side to the other. Plotly asks for it only for circles.
export function sankeyCircular(): never {
  throw new Error("flows that run in circles cannot be drawn");
}
