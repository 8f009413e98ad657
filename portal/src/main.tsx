import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { begin, takeCode } from "./app/session";
import "./ui/base.css";

// Before anything looks at the address: the code in it is secret.
void begin(takeCode());

window.addEventListener("hashchange", () => {
  // Another link was pasted into this tab: the browser loads nothing by itself.
  const code = takeCode();
  if (code !== null) void begin(code).then(() => location.reload());
});

const place = document.getElementById("root");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
