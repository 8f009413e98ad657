// Runs before the first paint: the theme and density that were chosen, so that nothing flashes.
(function () {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem("hpcbench.look") || "{}");
  } catch {
    // No storage, or not ours: the system's theme.
  }
  const root = document.documentElement;
  const dark = kept.theme === "dark" || (kept.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "dark" : "light";
  if (kept.density === "comfortable") root.dataset.density = "comfortable";
})();
